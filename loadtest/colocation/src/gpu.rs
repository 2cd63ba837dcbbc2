//! A GPU with SMs and streams.
//!
//! The kernels of a stream run one after the other. A kernel starts on the SMs that are free and takes more as they become free, in
//! waves if it needs more than there are. What runs on an SM is never interrupted: a stream of high priority is only the
//! first to get the next free SM. Streams of equal priority get SMs in the order in which their kernels became ready, as the
//! block scheduler of NVIDIA GPUs does.

use std::collections::VecDeque;

use invariant::expected;

use crate::interference::Interference;
use crate::kernel::Kernel;

/// Rest of a group, in nanoseconds, below which it has ended: the error of the arithmetic.
const ENDED_NS: f64 = 1e-3;

/// A kernel that has been launched into a stream.
#[derive(Debug)]
struct Launched {
    kernel: Kernel,
    last: bool,
    /// SMs' worth of blocks that have not started.
    waiting: u32,
    /// Blocks that started together.
    groups: Vec<Group>,
}

/// Blocks that started together on some SMs.
#[derive(Clone, Copy, Debug)]
struct Group {
    sms: u32,
    /// Time to its end at full speed, in nanoseconds.
    rest_ns: f64,
}

impl Launched {
    fn held(&self) -> u32 {
        self.groups.iter().map(|group| group.sms).sum()
    }
}

#[derive(Debug)]
struct Stream {
    priority: bool,
    limit: u32,
    kernels: VecDeque<Launched>,
    /// When the first kernel became ready, as a number that grows.
    ready: u64,
    /// Speed of the first kernel relative to an idle GPU, above 0 and at most 1.
    speed: f64,
}

/// A kernel that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its stream.
    pub stream: usize,
    /// Whether it was launched as the last one of a request.
    pub last: bool,
}

/// The state of the GPU at a moment.
#[derive(Debug)]
pub struct Gpu {
    sms: u32,
    free: u32,
    interference: Interference,
    streams: Vec<Stream>,
    now: u64,
    readied: u64,
    held_ns: Vec<f64>,
    busy_ns: u64,
}

impl Gpu {
    /// An idle GPU with a stream for each item; true gives a stream high priority.
    #[must_use]
    pub fn new(sms: u32, interference: Interference, priorities: &[bool]) -> Self {
        let stream = |priority: &bool| Stream {
            priority: *priority,
            limit: sms,
            kernels: VecDeque::new(),
            ready: 0,
            speed: 1.0,
        };
        Self {
            sms,
            free: sms,
            interference,
            streams: priorities.iter().map(stream).collect(),
            now: 0,
            readied: 0,
            held_ns: vec![0.0; priorities.len()],
            busy_ns: 0,
        }
    }

    /// Launches a kernel behind the others of the stream.
    pub fn launch(&mut self, stream: usize, kernel: Kernel, last: bool) {
        let stream = expected!(self.streams.get_mut(stream), "colocation.unknown_stream");
        let Some(stream) = stream else { return };
        stream.kernels.push_back(Launched { kernel, last, waiting: kernel.sms, groups: Vec::new() });
        if stream.kernels.len() == 1 {
            self.readied += 1;
            stream.ready = self.readied;
        }
        self.start_blocks();
    }

    /// Removes the kernels of a stream of which no block has started, and returns how many there were.
    pub fn evict(&mut self, stream: usize) -> usize {
        let stream = expected!(self.streams.get_mut(stream), "colocation.unknown_stream");
        let Some(stream) = stream else { return 0 };
        let before = stream.kernels.len();
        stream
            .kernels
            .retain(|launched| !launched.groups.is_empty() || launched.waiting < launched.kernel.sms);
        before - stream.kernels.len()
    }

    /// Limits the SMs that a stream may hold. Blocks that run stay.
    pub fn limit(&mut self, stream: usize, sms: u32) {
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.limit = sms.clamp(1, self.sms);
        }
        self.start_blocks();
    }

    /// When the next blocks end, if nothing else happens.
    #[must_use]
    pub fn next_end(&self) -> Option<u64> {
        let ends = self.streams.iter().filter_map(|stream| {
            let groups = &stream.kernels.front()?.groups;
            let rest = groups.iter().map(|group| group.rest_ns).min_by(f64::total_cmp)?;
            Some((rest / stream.speed).ceil().max(0.0) as u64)
        });
        ends.min().map(|rest| self.now + rest)
    }

    /// Runs until `now`, at most until [`Self::next_end`], and adds the kernels that have ended then.
    pub fn run(&mut self, now: u64, finished: &mut Vec<Finished>) {
        let passed_ns = now.saturating_sub(self.now);
        let passed = passed_ns as f64;
        self.now = now;
        self.busy_ns += if self.free < self.sms { passed_ns } else { 0 };
        let mut ended = false;
        for (index, (stream, held_ns)) in self.streams.iter_mut().zip(&mut self.held_ns).enumerate() {
            let Some(first) = stream.kernels.front_mut() else { continue };
            *held_ns += passed * f64::from(first.held());
            for group in &mut first.groups {
                group.rest_ns -= passed * stream.speed;
            }
            let held = first.held();
            first.groups.retain(|group| group.rest_ns > ENDED_NS);
            let released = held - first.held();
            self.free += released;
            ended |= released > 0;
            if released > 0 && first.groups.is_empty() && first.waiting == 0 {
                finished.push(Finished { stream: index, last: first.last });
                stream.kernels.pop_front();
                if !stream.kernels.is_empty() {
                    self.readied += 1;
                    stream.ready = self.readied;
                }
            }
        }
        if ended {
            self.start_blocks();
        }
    }

    /// Hands out the free SMs and updates the speeds.
    fn start_blocks(&mut self) {
        let mut order: Vec<usize> = (0..self.streams.len()).collect();
        order.sort_by_key(|index| self.streams.get(*index).map(|stream| (!stream.priority, stream.ready)));
        for index in order {
            let Some(stream) = self.streams.get_mut(index) else { continue };
            let Some(first) = stream.kernels.front_mut() else { continue };
            let given = self.free.min(first.waiting).min(stream.limit.saturating_sub(first.held()));
            if given > 0 {
                let waves = first.kernel.sms.div_ceil(self.sms);
                first
                    .groups
                    .push(Group { sms: given, rest_ns: first.kernel.duration_ns as f64 / f64::from(waves) });
                first.waiting -= given;
                self.free -= given;
            }
        }
        let running: Vec<_> = self
            .streams
            .iter()
            .map(|stream| stream.kernels.front().map(|first| (first.kernel.class, f64::from(first.held()))))
            .collect();
        for (index, stream) in self.streams.iter_mut().enumerate() {
            let Some(first) = stream.kernels.front() else { continue };
            let others = running.iter().enumerate().filter(|(other, _)| *other != index);
            let added = others.filter_map(|(_, other)| *other).map(|(class, held)| {
                self.interference.weight(first.kernel.class, class) * held / f64::from(self.sms)
            });
            stream.speed = 1.0 / (1.0 + added.sum::<f64>());
        }
    }

    /// SMs that hold no block.
    #[must_use]
    pub fn free_sms(&self) -> u32 {
        self.free
    }

    /// SMs that a stream holds.
    #[must_use]
    pub fn held_sms(&self, stream: usize) -> u32 {
        self.streams.get(stream).and_then(|stream| stream.kernels.front()).map_or(0, Launched::held)
    }

    /// Time for which a stream has held SMs, in nanoseconds times SMs.
    #[must_use]
    pub fn held_ns(&self, stream: usize) -> f64 {
        self.held_ns.get(stream).copied().unwrap_or_default()
    }

    /// Time for which at least one block ran, in nanoseconds.
    #[must_use]
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    /// Kernels that have been launched and have not ended.
    #[must_use]
    pub fn resident(&self) -> usize {
        self.streams.iter().map(|stream| stream.kernels.len()).sum()
    }
}
