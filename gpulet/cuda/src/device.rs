//! A GPU as a device: cut once, its gpulets made and unmade while it serves.
//!
//! Gpulets of an old and of a new plan may exist on the same units; that they do not run there at once is the router's
//! affair. A gpulet of another size is another context made beside the old one; none is ever changed. A fault ends all
//! gpulets of the device at once, and nothing but another process brings it back: the device says so once to each
//! watch, and from then on opens and runs nothing.
//!
//! **\[open\]**, to be read off a GPU: that 132 SMs give 16 units of 8 and a remainder of 4; what making a context and
//! a stream costs beside running ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use gpulet::{Device, DeviceError, DeviceInfo, Partition, PartitionSpec, PartitionWatch};
use models::engine::Session;
use models::{LoadOptions, ModelFiles};
use tracing::{error, warn};

use crate::backend::{Backend, MPS_SHARE_VARIABLE};
use crate::check::{Check, CheckError};
use crate::driver::{Driver, DriverError, GreenContext, Primary, Split, Stream};
use crate::idle::{Idle, UnitContext};
use crate::ledger::{Budget, Lease, Ledger, MemoryState};
use crate::maker::{SessionMaker, StreamRef};
use crate::partition::{Gpulet, GpuletReadings, OpenGpulet};
use crate::probe::Found;
use crate::units::{Grid, UnitRange};

/// How a GPU is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaOptions {
    /// Contexts of closed gpulets that are kept for later plans.
    pub idle_contexts: usize,
    /// Priority of gpulets' streams: smaller is more urgent; taken to the nearest that the GPU has.
    pub stream_priority: i32,
    /// Units of 2 SMs on Hopper, where kernels that need clusters of blocks cannot run.
    pub ignore_coscheduling: bool,
    /// Percent of the SMs that this process was given under MPS, as [`MPS_SHARE_VARIABLE`](crate::MPS_SHARE_VARIABLE)
    /// says; `None`: it says nothing.
    pub mps_share: Option<u32>,
}

impl Default for CudaOptions {
    fn default() -> Self {
        Self { idle_contexts: 8, stream_priority: 0, ignore_coscheduling: false, mps_share: None }
    }
}

/// How units become contexts.
enum Cut {
    Green(Split),
    /// One unit, which is everything.
    Whole(Grid),
    /// Hundredths, of which this process has so many.
    Share(Grid, Option<u32>),
}

impl Cut {
    fn grid(&self) -> &Grid {
        match self {
            Self::Green(split) => split.grid(),
            Self::Whole(grid) | Self::Share(grid, _) => grid,
        }
    }

    /// Whether a gpulet of these units can be made in this process.
    fn check(&self, units: UnitRange) -> Result<(), String> {
        match self {
            Self::Share(_, share) if *share != Some(units.count()) => {
                let has = share.map_or("no share".to_owned(), |share| format!("a share of {share} %"));
                Err(format!(
                    "{units}: this process was started with {has} of the GPU: expected {MPS_SHARE_VARIABLE}={}",
                    units.count()
                ))
            }
            Self::Green(_) | Self::Whole(_) | Self::Share(..) => Ok(()),
        }
    }
}

/// Who is to hear of a gpulet, until it heard.
struct Open {
    lane: u32,
    watch: Option<Arc<dyn PartitionWatch>>,
    gpulet: Weak<Gpulet>,
}

/// Devices that this process has cut: to cut one again would give the same SMs twice.
static IN_USE: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// The right to cut a device, given back when it is dropped.
struct Claim(i32);

impl Claim {
    fn on(ordinal: i32) -> Option<Self> {
        lock(&IN_USE).insert(ordinal).then(|| Self(ordinal))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&IN_USE).remove(&self.0);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What all gpulets of a device share. The order of the fields is the order in which they end.
pub(crate) struct State {
    info: DeviceInfo,
    idle: Mutex<Idle>,
    check: Mutex<Check>,
    cut: Cut,
    open: Mutex<BTreeMap<u64, Open>>,
    ledger: Arc<Ledger>,
    maker: Arc<dyn SessionMaker>,
    /// Held while a session is made: that waits for the whole device, and is measured by its memory.
    making: Mutex<()>,
    lost: OnceLock<String>,
    priority: i32,
    primary: Arc<Primary>,
    _claim: Claim,
}

/// A GPU, or an instance of one, cut into gpulets.
pub struct CudaDevice {
    state: Arc<State>,
}

impl CudaDevice {
    /// Takes a GPU that [`probe`](crate::probe) found: makes its context, cuts it, measures what is free. Its sessions
    /// come from `maker`. A process can take a GPU once at a time.
    ///
    /// # Errors
    /// Names the device, and what the driver or the backend lacks.
    pub fn take(
        found: &Found,
        backend: Backend,
        maker: Arc<dyn SessionMaker>,
        options: &CudaOptions,
    ) -> Result<Self, DeviceError> {
        let name = format!("gpu{}", found.ordinal);
        let failed = |why: String| DeviceError(format!("{name}: {why}"));
        let claim = Claim::on(found.ordinal)
            .ok_or_else(|| failed("this process uses the device already".to_owned()))?;
        let driver = Driver::load().map_err(|error| failed(error.to_string()))?;
        let said = |error: DriverError| failed(error.to_string());
        let primary = Primary::retain(driver, found.ordinal).map_err(said)?;
        let cut = match backend {
            Backend::CudaGreen => {
                let split = Split::once(&primary, found.capability, options.ignore_coscheduling);
                Cut::Green(split.map_err(|error| failed(error.to_string()))?)
            }
            Backend::CudaMps => Cut::Share(Grid::in_percent(found.sms), options.mps_share),
            Backend::Mig | Backend::CudaStream => {
                let grid = Grid::new(&[found.sms], 0);
                Cut::Whole(grid.ok_or_else(|| failed("the device has no SMs".to_owned()))?)
            }
        };
        let priority = primary.stream_priorities().map_err(said)?.nearest(options.stream_priority);
        let check = Check::new(&primary).map_err(said)?;
        let (free, total) = primary.memory().map_err(said)?;
        let ledger = Ledger::new(Budget::new(total, free));
        let info = DeviceInfo {
            name,
            backend: backend.as_str(),
            kind: found.name.clone(),
            units: cut.grid().units(),
            sizes: cut.grid().sizes(),
            memory_bytes: ledger.budget().usable(),
            guarantees: backend.guarantees(),
        };
        let state = State {
            info,
            idle: Mutex::new(Idle::new(options.idle_contexts)),
            check: Mutex::new(check),
            cut,
            open: Mutex::default(),
            ledger,
            maker,
            making: Mutex::new(()),
            lost: OnceLock::new(),
            priority,
            primary,
            _claim: claim,
        };
        Ok(Self { state: Arc::new(state) })
    }

    /// The units and the SMs in them.
    pub fn grid(&self) -> &Grid {
        self.state.cut.grid()
    }

    /// The books of its memory.
    pub fn memory(&self) -> MemoryState {
        self.state.ledger.state()
    }

    /// What its open gpulets did.
    pub fn gpulets(&self) -> Vec<GpuletReadings> {
        let open: Vec<_> = lock(&self.state.open).values().filter_map(|open| open.gpulet.upgrade()).collect();
        open.iter().map(|gpulet| gpulet.readings()).collect()
    }

    /// Units whose contexts rest until a plan wants them again, the one that rested longest first.
    pub fn resting(&self) -> Vec<UnitRange> {
        lock(&self.state.idle).resting()
    }

    /// Why it can run nothing any more; `None`: it can.
    pub fn lost(&self) -> Option<String> {
        self.state.lost()
    }
}

impl Device for CudaDevice {
    fn info(&self) -> &DeviceInfo {
        &self.state.info
    }

    fn open(
        &self,
        spec: &PartitionSpec,
        watch: Arc<dyn PartitionWatch>,
    ) -> Result<Arc<dyn Partition>, DeviceError> {
        let state = &self.state;
        let failed = |why: String| DeviceError(format!("{}: gpulet {}: {why}", state.info.name, spec.lane));
        let units =
            self.grid().range(spec.first_unit, spec.units).map_err(|none| failed(none.to_string()))?;
        state.cut.check(units).map_err(failed)?;
        state.look_at_ending();
        if let Some(reason) = state.lost() {
            return Err(failed(reason));
        }
        let context = state.context(units).map_err(|error| failed(format!("{units}: {error}")))?;
        let gpulet = state.enter(spec.lane, context, watch);
        match state.lost() {
            Some(reason) => Err(failed(reason)),
            None => Ok(Arc::new(OpenGpulet { gpulet })),
        }
    }
}

impl State {
    pub(crate) fn ordinal(&self) -> i32 {
        self.primary.ordinal()
    }

    pub(crate) fn lost(&self) -> Option<String> {
        self.lost.get().cloned()
    }

    /// A context on these units: a resting one, or a new one.
    fn context(&self, units: UnitRange) -> Result<Arc<UnitContext>, CheckError> {
        if let Some(resting) = lock(&self.idle).take(units) {
            return Ok(resting);
        }
        loop {
            let error = match self.make_context(units) {
                Ok(context) => return Ok(context),
                Err(error) => error,
            };
            if let CheckError::Driver(said) = &error
                && said.is_sticky()
            {
                self.lose(&said.to_string());
                return Err(error);
            }
            let Some(oldest) = lock(&self.idle).take_oldest() else { return Err(error) };
            warn!(device = %self.info.name, units = %oldest.units, %error, "a resting context is given up for a new one");
        }
    }

    fn make_context(&self, units: UnitRange) -> Result<Arc<UnitContext>, CheckError> {
        let (stream, sms) = match &self.cut {
            Cut::Green(split) => {
                let context = GreenContext::create(split.describe(units)?)?;
                (Stream::on_green(&context, self.priority)?, context.sms())
            }
            Cut::Whole(grid) | Cut::Share(grid, _) => {
                (Stream::on_device(&self.primary, self.priority)?, grid.sms(units))
            }
        };
        lock(&self.check).run(&stream)?;
        let wanted = self.cut.grid().sms(units);
        if sms != wanted {
            warn!(device = %self.info.name, %units, wanted, sms, "the driver gave another number of SMs");
        }
        Ok(Arc::new(UnitContext { stream, units, sms }))
    }

    fn enter(
        self: &Arc<Self>,
        lane: u32,
        context: Arc<UnitContext>,
        watch: Arc<dyn PartitionWatch>,
    ) -> Arc<Gpulet> {
        let mut open = lock(&self.open);
        let number = open.last_key_value().map_or(0, |(last, _)| last + 1);
        let gpulet = Gpulet::new(self, lane, number, context);
        open.insert(number, Open { lane, watch: Some(watch), gpulet: Arc::downgrade(&gpulet) });
        gpulet
    }

    /// Forgets a gpulet that nobody has any more.
    pub(crate) fn closed(&self, number: u64) {
        let gone = lock(&self.open).remove(&number);
        drop(gone);
    }

    /// Takes a closed gpulet's context back.
    pub(crate) fn rest(&self, context: Arc<UnitContext>) {
        self.look_at_ending();
        if self.lost.get().is_some() {
            return;
        }
        let dropped = match context.stream.is_idle() {
            Ok(true) => lock(&self.idle).keep(context),
            Ok(false) => {
                lock(&self.idle).let_end(context);
                Vec::new()
            }
            Err(error) => {
                self.note(&error);
                vec![context]
            }
        };
        drop(dropped);
    }

    fn look_at_ending(&self) {
        let (dropped, errors) = lock(&self.idle).look();
        drop(dropped);
        errors.iter().for_each(|error| self.note(error));
    }

    fn note(&self, error: &DriverError) {
        if error.is_sticky() {
            self.lose(&error.to_string());
        } else {
            warn!(device = %self.info.name, %error, "a closed gpulet's context is not used again");
        }
    }

    /// Gives the device up, and tells every gpulet that has not heard.
    pub(crate) fn lose(&self, why: &str) {
        let reason = format!("{} is lost: {why}", self.info.name);
        if self.lost.set(reason.clone()).is_ok() {
            error!("{reason}; only another process gets it back");
        }
        let told: Vec<_> = lock(&self.open)
            .values_mut()
            .filter_map(|open| open.watch.take().map(|watch| (open.lane, watch)))
            .collect();
        let reason = self.lost().unwrap_or(reason);
        told.iter().for_each(|(lane, watch)| watch.failed(*lane, &reason));
    }

    /// Makes a session and books it.
    pub(crate) fn make(
        &self,
        files: &ModelFiles,
        options: &LoadOptions,
        stream: StreamRef,
    ) -> Result<(Box<dyn Session>, Lease), DeviceError> {
        let failed = |why: String| DeviceError(format!("{}: {why}", self.info.name));
        let _one = lock(&self.making);
        let need = self.maker.need(files, options);
        let mut lease = self.ledger.admit(files, need).map_err(|refused| failed(refused.to_string()))?;
        let free = || self.primary.memory().map(|(free, _)| free);
        let made = free().and_then(|before| {
            let session = self.maker.make(files, options, stream);
            let after = session.is_ok().then(free).transpose()?;
            Ok((session, before.saturating_sub(after.unwrap_or(before))))
        });
        match made {
            Ok((Ok(session), grown)) => {
                if lease.measured(grown) {
                    warn!(device = %self.info.name, model = %files.name, grown, "its sessions do not share weights");
                }
                Ok((session, lease))
            }
            Ok((Err(error), _)) => {
                if let Err(said) = free() {
                    self.note(&said);
                }
                Err(error)
            }
            Err(said) => {
                self.note(&said);
                Err(failed(format!("model `{}`: {said}", files.name)))
            }
        }
    }
}
