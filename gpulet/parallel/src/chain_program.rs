//! The dynamic program for chains: which devices run which consecutive layers at the least cost.
//!
//! Devices that do not differ form a pool. A state is the number of layers placed and of devices used from each pool, so
//! the result is optimal for every order of the devices. For chains, this is exact: a stage depends on its layers and its
//! devices only.

use crate::error::ParallelError;

/// Entries of the table at most; one takes 24 bytes.
const ENTRIES_MAX: u64 = 4_000_000;

/// Steps at most: a few seconds.
const STEPS_MAX: u64 = 4_000_000_000;

/// What a split is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// The slowest stage takes the least time: most requests a second.
    Bottleneck,
    /// All stages together take the least time: the fastest single request.
    Latency,
}

impl Objective {
    /// Each objective with its word.
    pub const ALL: [(&str, Self); 2] = [("bottleneck", Self::Bottleneck), ("latency", Self::Latency)];

    /// The objective of that word.
    pub fn find(word: &str) -> Result<Self, ParallelError> {
        let found = Self::ALL.iter().find(|(name, _)| *name == word);
        found.map(|(_, objective)| *objective).ok_or_else(|| {
            ParallelError::invalid("objective", "one of bottleneck, latency", format!("`{word}`"))
        })
    }

    /// The cost of some stages and one more.
    pub(crate) fn with(self, before: f64, stage: f64) -> f64 {
        match self {
            Self::Bottleneck => before.max(stage),
            Self::Latency => before + stage,
        }
    }
}

/// A way to run a stage: on some devices of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) pool: usize,
    /// Devices that the stage takes, at least 1.
    pub(crate) devices: usize,
}

/// A stage of the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Segment {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) choice: Choice,
}

/// Sizes of a program.
pub(crate) struct Program<'a> {
    pub(crate) layers: usize,
    /// Devices of each pool.
    pub(crate) pools: &'a [usize],
    pub(crate) choices: &'a [Choice],
    pub(crate) objective: Objective,
}

#[derive(Clone, Copy)]
struct Entry {
    cost: f64,
    /// Layers of the stages before the last one.
    from: u32,
    choice: u32,
}

const UNREACHED: Entry = Entry { cost: f64::INFINITY, from: 0, choice: 0 };

impl Program<'_> {
    /// The stages of least cost among the states that `accepts` (devices used from each pool). `cost` gives seconds of
    /// layers `from..to` under a choice, `None` if they do not fit. With the same `to`, longer stages cost more and fit less.
    pub(crate) fn solve(
        &self,
        accepts: impl Fn(&[usize]) -> bool,
        cost: impl Fn(usize, usize, Choice) -> Option<f64>,
    ) -> Result<Option<Vec<Segment>>, ParallelError> {
        let strides = self.strides()?;
        let width = self.layers + 1;
        let states = strides.last().copied().unwrap_or(1);
        let mut table = vec![UNREACHED; states * width];
        if let Some(start) = table.first_mut() {
            start.cost = 0.0;
        }
        for state in 1..states {
            let used = self.used(state, &strides);
            for (number, choice) in (0_u32..).zip(self.choices) {
                let (Some(count), Some(stride)) = (used.get(choice.pool), strides.get(choice.pool)) else {
                    continue;
                };
                if *count < choice.devices {
                    continue;
                }
                let (before, rest) = table.split_at_mut(state * width);
                let previous = before.get((state - choice.devices * stride) * width..).unwrap_or_default();
                for (to, entry) in rest.iter_mut().take(width).enumerate().skip(1) {
                    for from in (0..to).rev() {
                        let Some(stage) = cost(from, to, *choice) else { break };
                        if stage >= entry.cost {
                            break;
                        }
                        let base = previous.get(from).map_or(f64::INFINITY, |entry| entry.cost);
                        let total = self.objective.with(base, stage);
                        if total < entry.cost {
                            *entry =
                                Entry { cost: total, from: u32::try_from(from).unwrap_or(0), choice: number };
                        }
                    }
                }
            }
        }
        Ok(self.best(&table, &strides, accepts))
    }

    fn best(
        &self,
        table: &[Entry],
        strides: &[usize],
        accepts: impl Fn(&[usize]) -> bool,
    ) -> Option<Vec<Segment>> {
        let width = self.layers + 1;
        let states = table.len() / width;
        let at = |state: usize, layers: usize| table.get(state * width + layers).copied();
        let accepted = (1..states).filter(|state| accepts(&self.used(*state, strides)));
        let ends = accepted.filter_map(|state| Some((state, at(state, self.layers)?.cost)));
        let (mut state, cost) = ends.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
        if cost.is_infinite() {
            return None;
        }
        let mut segments = Vec::new();
        let mut to = self.layers;
        while to > 0 {
            let entry = at(state, to)?;
            let choice = *self.choices.get(usize::try_from(entry.choice).ok()?)?;
            let from = usize::try_from(entry.from).ok()?;
            segments.push(Segment { from, to, choice });
            state = state.checked_sub(choice.devices * strides.get(choice.pool)?)?;
            to = from;
        }
        segments.reverse();
        Some(segments)
    }

    /// What one more device of each pool adds to the number of a state; the number of states last.
    fn strides(&self) -> Result<Vec<usize>, ParallelError> {
        let mut strides = vec![1_usize];
        let mut states = 1_usize;
        for count in self.pools {
            states = states.saturating_mul(count + 1);
            strides.push(states);
        }
        let wide = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let entries = wide(states).saturating_mul(wide(self.layers + 1));
        if entries > ENTRIES_MAX {
            let field = "layers times subsets of devices".to_owned();
            return Err(ParallelError::TooLarge { field, most: ENTRIES_MAX, got: entries });
        }
        let steps = entries.saturating_mul(wide(self.layers)).saturating_mul(wide(self.choices.len())) / 2;
        if steps > STEPS_MAX {
            let field = "steps of the dynamic program".to_owned();
            return Err(ParallelError::TooLarge { field, most: STEPS_MAX, got: steps });
        }
        Ok(strides)
    }

    /// Devices used from each pool in a state.
    fn used(&self, state: usize, strides: &[usize]) -> Vec<usize> {
        self.pools.iter().zip(strides).map(|(count, stride)| state / stride % (count + 1)).collect()
    }
}
