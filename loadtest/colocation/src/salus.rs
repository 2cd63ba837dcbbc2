//! Salus (Yu and Chowdhury, MLSys 2020): training jobs that share a GPU, one iteration after the other.

mod job_list;
mod lanes;
mod run;

use invariant::expected;

use serde::Serialize;

pub use job_list::{Job, draw, jobs};
pub use lanes::Lanes;
pub use run::{Completion, run};

/// Memory that jobs may use, in MB: what the authors' experiments with a Tesla P100 of 16 GB allow (`benchmarks/exps/card266.py`).
pub const MEMORY_MB: f64 = 14_336.0;
/// Gain of running compute-bound jobs in lanes at the same time over one after the other (section 5.2.2, resnet50_50).
pub const LANES_GAIN: f64 = 1.07;

/// Which job runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// One job at a time has the GPU, in the order of arrival: what Salus is compared with.
    Fifo,
    /// The job with the shortest remaining time runs; another one takes over at the end of an iteration. One lane.
    Srtf,
    /// The job that has run least since a job was admitted runs. One lane.
    Fair,
    /// As many lanes as memory allows run at the same time, each in the order of arrival.
    Pack,
}

impl Order {
    /// The words and what they select.
    pub const ALL: &'static [(&'static str, Self, &'static str)] = &[
        ("fifo", Self::Fifo, "one job at a time, in the order of arrival"),
        ("srtf", Self::Srtf, "Salus: the shortest remaining time first, preempted between iterations"),
        ("fair", Self::Fair, "Salus: the job that has run least"),
        ("pack", Self::Pack, "Salus: as many lanes at the same time as memory allows"),
    ];

    /// Finds the order of a word.
    ///
    /// # Errors
    /// The words that would be right.
    pub fn find(word: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, ..)| *name == word);
        found.map(|(_, order, _)| *order).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|(name, ..)| *name).collect();
            format!("expected one of {}, all, got `{word}`", names.join(", "))
        })
    }

    /// Lanes that may run at the same time.
    fn lanes_max(self) -> usize {
        match self {
            Self::Fifo | Self::Srtf | Self::Fair => 1,
            Self::Pack => usize::MAX,
        }
    }
}

/// What happens to [`Salus`].
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A job arrives.
    Arrived(usize),
    /// The iteration that ran in a lane has ended.
    IterationEnded(usize),
}

/// What [`Salus`] wants to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Run the next iteration of a job in its lane.
    Run {
        /// Number of the lane.
        lane: usize,
        /// Place of the job in the list.
        job: usize,
    },
    /// The last iteration of a job has ended.
    Done(usize),
}

/// Jobs that wait for memory, and lanes with those that run: decides which job runs its next iteration.
#[derive(Debug)]
pub struct Salus {
    order: Order,
    jobs: Vec<Job>,
    /// Iterations left, by job.
    left: Vec<u64>,
    /// Seconds of service since the last admission, by job.
    served: Vec<f64>,
    waiting: Vec<usize>,
    lanes: Lanes,
    /// The job whose iteration runs, by lane.
    running: Vec<Option<usize>>,
}

impl Salus {
    /// For jobs that have not arrived yet.
    #[must_use]
    pub fn new(order: Order, jobs: Vec<Job>, memory_mb: f64) -> Self {
        Self {
            order,
            left: jobs.iter().map(|job| job.iterations.max(1)).collect(),
            served: vec![0.0; jobs.len()],
            waiting: Vec::new(),
            lanes: Lanes::new(memory_mb, order.lanes_max()),
            running: Vec::new(),
            jobs,
        }
    }

    /// The memory of the jobs that have been admitted.
    #[must_use]
    pub fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// Lanes in which an iteration runs.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.running.iter().flatten().count()
    }

    /// Takes an event and adds what has to be done.
    pub fn handle(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Arrived(job) => self.waiting.push(job),
            Event::IterationEnded(lane) => self.end_iteration(lane, effects),
        }
        self.admit();
        for lane in 0..self.lanes.count() {
            if self.running.len() <= lane {
                self.running.resize(lane + 1, None);
            }
            if self.running.get(lane).is_some_and(Option::is_none)
                && let Some(job) = self.next(lane)
            {
                self.running.splice(lane..=lane, [Some(job)]);
                effects.push(Effect::Run { lane, job });
            }
        }
    }

    fn end_iteration(&mut self, lane: usize, effects: &mut Vec<Effect>) {
        let running = self.running.get_mut(lane).and_then(Option::take);
        let Some(job) = expected!(running, "colocation.lane_without_job") else { return };
        if let (Some(served), Some(spec)) = (self.served.get_mut(job), self.jobs.get(job)) {
            *served += spec.iteration_seconds();
        }
        let Some(left) = expected!(self.left.get_mut(job), "colocation.unknown_job") else { return };
        *left -= 1;
        if *left == 0 {
            self.lanes.release(job);
            effects.push(Effect::Done(job));
        }
    }

    /// Admits waiting jobs that fit, the first ones first.
    fn admit(&mut self) {
        if self.order == Order::Srtf {
            let mut waiting = std::mem::take(&mut self.waiting);
            waiting.sort_by(|one, other| self.seconds_left(*one).total_cmp(&self.seconds_left(*other)));
            self.waiting = waiting;
        }
        let mut place = 0;
        while let Some(job) = self.waiting.get(place).copied() {
            let alone = self.order == Order::Fifo;
            let fits = (!alone || self.lanes.jobs() == 0)
                && self
                    .jobs
                    .get(job)
                    .is_some_and(|spec| self.lanes.admit(job, spec.persistent_mb, spec.ephemeral_mb));
            if fits {
                self.waiting.remove(place);
                self.served.fill(0.0);
            } else if alone {
                return;
            } else {
                place += 1;
            }
        }
    }

    fn next(&self, lane: usize) -> Option<usize> {
        let jobs = self.lanes.jobs_of(lane);
        let least = |key: &dyn Fn(usize) -> f64| {
            jobs.iter().copied().min_by(|one, other| key(*one).total_cmp(&key(*other)).then(one.cmp(other)))
        };
        match self.order {
            Order::Fifo | Order::Pack => jobs.first().copied(),
            Order::Srtf => least(&|job| self.seconds_left(job)),
            Order::Fair => least(&|job| self.served.get(job).copied().unwrap_or_default()),
        }
    }

    fn seconds_left(&self, job: usize) -> f64 {
        let left = self.left.get(job).copied().unwrap_or_default() as f64;
        self.jobs.get(job).map_or(0.0, |spec| left * spec.iteration_seconds())
    }
}
