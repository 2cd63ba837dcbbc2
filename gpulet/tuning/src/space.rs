//! The configurations that can be tried: knobs, and which of their values go together.

use std::fmt;

/// What runs the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Engine {
    /// ONNX Runtime.
    Ort,
    /// tract. It runs a batch on one thread and has no other knobs.
    Tract,
}

/// How much of a graph ONNX Runtime rewrites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The graph runs as the file has it.
    Disable,
    /// Rewrites that hold for every provider.
    Basic,
    /// Also fusions.
    Extended,
    /// Also changes of memory layout.
    All,
}

impl Level {
    /// Every level, the fewest rewrites first.
    pub const EACH: [Self; 4] = [Self::Disable, Self::Basic, Self::Extended, Self::All];

    /// The word of settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Basic => "basic",
            Self::Extended => "extended",
            Self::All => "all",
        }
    }
}

impl Engine {
    /// Every engine.
    pub const EACH: [Self; 2] = [Self::Ort, Self::Tract];

    /// The word of settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ort => "ort",
            Self::Tract => "tract",
        }
    }
}

/// Everything but the batch: what needs new sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Setup {
    /// What runs the model.
    pub engine: Engine,
    /// Batches that run at the same time, each on a lane of its own.
    pub lanes: u32,
    /// Threads of a batch; 1 for tract.
    pub threads: u32,
    /// Rewrites of the graph; [`Level::All`] for tract, which has no levels.
    pub level: Level,
    /// Whether threads spin between operators. Only more than one thread can.
    pub spinning: bool,
}

/// One configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Configuration {
    /// Everything but the batch.
    pub setup: Setup,
    /// Largest batch, rows.
    pub batch: u32,
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lanes = if self.lanes == 1 { "lane" } else { "lanes" };
        write!(f, "{} {} {lanes}", self.engine.as_str(), self.lanes)?;
        if self.engine == Engine::Ort {
            let threads = if self.threads == 1 { "thread" } else { "threads" };
            write!(f, ", {} {threads}, level {}", self.threads, self.level.as_str())?;
        }
        if self.spinning { write!(f, ", spinning") } else { Ok(()) }
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, batch {}", self.setup, self.batch)
    }
}

/// The batches that are tried by default, rows.
pub const BATCHES: [u32; 20] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 22, 24, 28, 32];

/// Number of values of a knob, and of knobs, in [`Space::place`].
pub const KNOBS: usize = 6;

/// All configurations of a machine, without any that differ in nothing. A configuration is known by its index: batches of a setup follow each
/// other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    setups: Vec<Setup>,
    batches: Vec<u32>,
    /// Values of lanes and threads, ascending.
    lanes: Vec<u32>,
    threads: Vec<u32>,
    cores: u32,
}

impl Space {
    /// The space of a machine with this number of cores, for batches and engines that the model takes.
    ///
    /// There are up to twice as many lanes as cores: further lanes share cores. Lanes times threads is at most twice the cores, too.
    pub fn new(cores: u32, batches: &[u32], engines: &[Engine]) -> Self {
        let cores = cores.max(1);
        let powers = (0..31).map(|power| 1_u32 << power).take_while(|count| *count < cores);
        let mut threads: Vec<u32> = powers.clone().collect();
        threads.push(cores);
        let mut lanes = threads.clone();
        lanes.extend([cores.saturating_add(cores.div_ceil(2)), cores.saturating_mul(2)]);
        lanes.sort_unstable();
        lanes.dedup();
        let mut setups = Vec::new();
        for engine in Engine::EACH.into_iter().filter(|engine| engines.contains(engine)) {
            for &lanes in &lanes {
                if engine == Engine::Tract {
                    setups.push(Setup { engine, lanes, threads: 1, level: Level::All, spinning: false });
                    continue;
                }
                for &threads in threads.iter().filter(|threads| lanes.saturating_mul(**threads) <= 2 * cores)
                {
                    for level in Level::EACH {
                        setups.push(Setup { engine, lanes, threads, level, spinning: false });
                        if threads > 1 {
                            setups.push(Setup { engine, lanes, threads, level, spinning: true });
                        }
                    }
                }
            }
        }
        let mut batches = batches.to_vec();
        batches.sort_unstable();
        batches.dedup();
        Self { setups, batches, lanes, threads, cores }
    }

    /// Number of configurations.
    pub fn len(&self) -> usize {
        self.setups.len().saturating_mul(self.batches.len())
    }

    /// Whether there is nothing to try.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Cores of the machine.
    pub fn cores(&self) -> u32 {
        self.cores
    }

    /// Setups, in the order of indices.
    pub fn setups(&self) -> &[Setup] {
        &self.setups
    }

    /// Batches, ascending.
    pub fn batches(&self) -> &[u32] {
        &self.batches
    }

    /// The configuration of an index.
    pub fn get(&self, index: usize) -> Option<Configuration> {
        let setup = self.setups.get(index.checked_div(self.batches.len())?)?;
        let batch = self.batches.get(index.checked_rem(self.batches.len())?)?;
        Some(Configuration { setup: *setup, batch: *batch })
    }

    /// The index of a configuration.
    pub fn index(&self, configuration: Configuration) -> Option<usize> {
        let setup = self.setups.iter().position(|setup| *setup == configuration.setup)?;
        let batch = self.batches.iter().position(|batch| *batch == configuration.batch)?;
        Some(self.at(setup, batch))
    }

    /// The index of a place in [`setups`](Self::setups) and one in [`batches`](Self::batches).
    pub fn at(&self, setup: usize, batch: usize) -> usize {
        setup.saturating_mul(self.batches.len()).saturating_add(batch)
    }

    /// The places in [`setups`](Self::setups) and [`batches`](Self::batches) of an index.
    pub fn parts(&self, index: usize) -> (usize, usize) {
        (index / self.batches.len().max(1), index % self.batches.len().max(1))
    }

    /// What a server does without settings: a lane of one thread for each core, on the first engine of the space, with all rewrites.
    pub fn default_setup(&self) -> Option<usize> {
        let is_default = |setup: &Setup| {
            setup.lanes == self.cores && setup.threads == 1 && setup.level == Level::All && !setup.spinning
        };
        self.setups.iter().position(is_default).or(if self.setups.is_empty() { None } else { Some(0) })
    }

    /// Place of a configuration on each knob: engine, lanes, threads, level, spinning and batch, as the number of the value.
    pub fn place(&self, index: usize) -> [usize; KNOBS] {
        let (setup, batch) = self.parts(index);
        let Some(of) = self.setups.get(setup) else { return [0; KNOBS] };
        let number = |values: &[u32], value: u32| values.iter().position(|one| *one == value).unwrap_or(0);
        [
            usize::from(of.engine == Engine::Tract),
            number(&self.lanes, of.lanes),
            number(&self.threads, of.threads),
            Level::EACH.iter().position(|level| *level == of.level).unwrap_or(0),
            usize::from(of.spinning),
            batch,
        ]
    }

    /// Numbers of values of each knob, as [`place`](Self::place) has them.
    pub fn extents(&self) -> [usize; KNOBS] {
        [2, self.lanes.len(), self.threads.len(), Level::EACH.len(), 2, self.batches.len()]
    }

    /// Place of a configuration on each knob, from 0 to 1.
    pub fn unit_place(&self, index: usize) -> [f64; KNOBS] {
        let (place, extents) = (self.place(index), self.extents());
        let mut unit = [0.0; KNOBS];
        for ((unit, place), extent) in unit.iter_mut().zip(place).zip(extents) {
            *unit = place as f64 / extent.saturating_sub(1).max(1) as f64;
        }
        unit
    }

    /// The configuration one step from another in one knob. A step to values that do not go together changes what does not fit: threads
    /// that stop spinning when only one is left, fewer threads when there are more lanes, and all knobs that tract does not have. `None`: no such
    /// value.
    pub fn step(&self, from: usize, knob: usize, up: bool) -> Option<usize> {
        let mut place = self.place(from);
        let extent = self.extents().get(knob).copied()?;
        let value = place.get_mut(knob)?;
        *value = if up { value.checked_add(1)? } else { value.checked_sub(1)? };
        if *value >= extent {
            return None;
        }
        let [engine, lanes, threads, level, spinning, batch] = place;
        let engine = if engine == 1 { Engine::Tract } else { Engine::Ort };
        let lanes = self.lanes.get(lanes).copied()?;
        let mut setup = Setup {
            engine,
            lanes,
            threads: self.threads.get(threads).copied()?,
            level: Level::EACH.get(level).copied()?,
            spinning: spinning == 1,
        };
        if engine == Engine::Tract {
            setup = Setup { engine, lanes, threads: 1, level: Level::All, spinning: false };
        }
        let fits = |threads: u32| lanes.saturating_mul(threads) <= 2 * self.cores;
        if !fits(setup.threads) {
            setup.threads = self.threads.iter().copied().filter(|threads| fits(*threads)).max()?;
        }
        setup.spinning = setup.spinning && setup.threads > 1;
        let setup = self.setups.iter().position(|one| *one == setup)?;
        let index = self.at(setup, batch);
        (index != from).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cores_have_720_configurations_that_all_differ() {
        let space = Space::new(2, &BATCHES, &Engine::EACH);
        assert_eq!((space.setups().len(), space.len()), (36, 720));
        for index in 0..space.len() {
            let configuration = space.get(index).unwrap();
            assert_eq!(space.index(configuration), Some(index));
            let Configuration { setup, .. } = configuration;
            assert!(setup.threads > 1 || !setup.spinning, "{setup}");
            assert!(setup.lanes * setup.threads <= 4, "{setup}");
            assert!(
                setup.engine == Engine::Ort || (setup.threads == 1 && setup.level == Level::All),
                "{setup}"
            );
        }
        assert_eq!(space.get(720), None);
        let default = space.setups()[space.default_setup().unwrap()];
        assert_eq!(default.to_string(), "ort 2 lanes, 1 thread, level all");
        let tract = Space::new(2, &[1], &[Engine::Tract]);
        assert_eq!(tract.setups()[tract.default_setup().unwrap()].to_string(), "tract 2 lanes");
    }

    #[test]
    fn one_core_and_many_cores_have_a_space_too() {
        assert_eq!(Space::new(1, &[1, 2], &[Engine::Tract]).len(), 4, "one lane and two on one core");
        let many = Space::new(16, &BATCHES, &Engine::EACH);
        assert!(many.setups().iter().any(|setup| (setup.lanes, setup.threads) == (2, 16)));
        assert!(many.len() > 720 && many.len() < 20_000, "{}", many.len());
        assert!(Space::new(2, &[], &Engine::EACH).is_empty());
    }

    #[test]
    fn a_step_changes_one_knob_and_what_does_not_fit() {
        let space = Space::new(2, &BATCHES, &Engine::EACH);
        let at = |lanes, threads, level, spinning, batch| {
            let setup = Setup { engine: Engine::Ort, lanes, threads, level, spinning };
            space.index(Configuration { setup, batch }).unwrap()
        };
        let from = at(2, 2, Level::Basic, true, 8);
        assert_eq!(space.step(from, 5, true), Some(at(2, 2, Level::Basic, true, 9)));
        assert_eq!(space.step(from, 4, false), Some(at(2, 2, Level::Basic, false, 8)));
        assert_eq!(
            space.step(from, 1, true),
            Some(at(3, 1, Level::Basic, false, 8)),
            "3 lanes have one thread"
        );
        assert_eq!(space.step(from, 2, true), None);
        assert_eq!(
            space.step(at(3, 1, Level::All, false, 1), 2, true),
            None,
            "3 lanes of 2 threads do not fit"
        );
        let tract = space.step(from, 0, true).and_then(|index| space.get(index)).unwrap();
        assert_eq!(tract.to_string(), "tract 2 lanes, batch 8");
        assert_eq!(space.step(at(1, 1, Level::All, false, 1), 5, false), None);
        for index in 0..space.len() {
            for knob in 0..KNOBS {
                for up in [true, false] {
                    assert!(space.step(index, knob, up).is_none_or(|to| to != index && to < space.len()));
                }
            }
        }
    }
}
