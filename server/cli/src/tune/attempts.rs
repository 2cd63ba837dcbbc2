//! The trials of a run: what was measured, and the sessions that are loaded.

use std::time::Duration;

use tuning::{Measured, Objective, Space};

use super::grid_file::{Cell, GridFile};
use super::trial::{Loaded, Rig};
use crate::profile::Halt;
use crate::profile::progress::Bar;

/// The state of a run.
pub struct Attempts<'a> {
    pub rig: Rig<'a>,
    pub space: &'a Space,
    pub objective: Objective,
    pub time: Duration,
    pub measured: Measured,
    pub file: GridFile,
    pub bar: Bar,
    /// Sessions of the last trial.
    pub loaded: Option<Loaded>,
}

impl Attempts<'_> {
    /// Measures a configuration, and writes the result. One that does not run is a result, too.
    pub fn attempt(&mut self, index: usize) -> Result<(), Halt> {
        let configuration =
            self.space.get(index).ok_or_else(|| Halt::Failed("is outside of the space".to_owned()))?;
        self.bar.say(configuration.to_string());
        let trial = match self.loaded_with(index) {
            Ok(()) => match &mut self.loaded {
                Some(loaded) => loaded.run(configuration.batch, self.time, self.rig.stop),
                None => Err(Halt::Stopped),
            },
            Err(halt) => Err(halt),
        };
        let cell = match trial {
            Ok(trial) => Cell::new(configuration, trial.measurement, trial.runs),
            Err(Halt::Failed(reason)) => Cell::failed(configuration, reason),
            Err(halt) => return Err(halt),
        };
        self.measured.add(index, cell.measurement());
        self.file.add(cell).map_err(Halt::Lost)?;
        self.bar.finish_cell();
        Ok(())
    }

    fn loaded_with(&mut self, index: usize) -> Result<(), Halt> {
        let Some(configuration) = self.space.get(index) else { return Ok(()) };
        if self.loaded.as_ref().is_none_or(|loaded| loaded.setup != configuration.setup) {
            // The memory of the last sessions first.
            self.loaded = None;
            self.loaded = Some(self.rig.load(configuration.setup)?);
        }
        Ok(())
    }

    /// Drops the sessions.
    pub fn unload(&mut self) {
        self.loaded = None;
    }
}
