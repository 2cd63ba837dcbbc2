//! What all gpulets of a GPU share: split into units once, its gpulets opened and closed while it serves.
//!
//! Gpulets of an old and of a new plan may exist on the same units; the router ensures that they do not run there at the
//! same time. A gpulet of another size is another context, created while the old one still exists; contexts never
//! change. A fault ends all gpulets of the device, and only a new process can use it again. The device then tells each
//! watch once, and refuses to open gpulets or run batches.
//!
//! **\[open\]**, to be measured on a GPU: that 132 SMs give 16 units of 8 and a remainder of 4; what creating a context
//! and a stream costs running ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use gpulet::{DeviceError, DeviceInfo, PartitionSpec, PartitionWatch};
use models::engine::Session;
use models::{LoadOptions, ModelFiles};
use tracing::{error, warn};

use crate::backend::{Backend, MPS_SHARE_VARIABLE};
use crate::check::{Check, CheckError};
use crate::driver::{Driver, DriverError, GreenContext, Primary, Split, Stream, StreamPriorities};
use crate::gpulet::{Gpulet, Owner};
use crate::idle_contexts::{IdleContexts, UnitContext};
use crate::ledger::{Budget, Lease, Ledger, MemoryState};
use crate::maker::{SessionMaker, StreamRef};
use crate::probe::Found;
use crate::units::{Grid, UnitRange, device_type};

/// How a GPU is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaOptions {
    /// Contexts of closed gpulets to keep for later plans.
    pub idle_contexts: usize,
    /// Whether units have 2 SMs on Hopper too, where kernels that need clusters of blocks then cannot run.
    pub ignore_coscheduling: bool,
    /// Percentage of the SMs that this process has under MPS, from
    /// [`MPS_SHARE_VARIABLE`](crate::MPS_SHARE_VARIABLE); none if the variable is not set.
    pub mps_share: Option<u32>,
}

impl Default for CudaOptions {
    fn default() -> Self {
        Self { idle_contexts: 8, ignore_coscheduling: false, mps_share: None }
    }
}

/// How units become contexts.
enum Partitioning {
    Green(Split),
    /// One unit: the whole device.
    Whole(Grid),
    /// Units of one percent, and the percentage of this process.
    Share(Grid, Option<u32>),
}

impl Partitioning {
    fn grid(&self) -> &Grid {
        match self {
            Self::Green(split) => split.grid(),
            Self::Whole(grid) | Self::Share(grid, _) => grid,
        }
    }

    /// Checks that this process can open a gpulet of these units.
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

/// An open gpulet and its watch, until the watch was told of a failure.
struct Open {
    lane: u32,
    watch: Option<Arc<dyn PartitionWatch>>,
}

/// Devices that this process uses: splitting one a second time would assign the same SMs again.
static IN_USE: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// The exclusive use of a device in this process, until it is dropped.
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

/// A device in use. Fields drop in this order.
pub(crate) struct State {
    info: DeviceInfo,
    idle: Mutex<IdleContexts>,
    check: Mutex<Check>,
    partitioning: Partitioning,
    open: Mutex<BTreeMap<u64, Open>>,
    ledger: Arc<Ledger>,
    maker: Arc<dyn SessionMaker>,
    /// Held while a session is made, which waits for the whole device and is measured by the device's free memory.
    making: Mutex<()>,
    failure: OnceLock<String>,
    priorities: StreamPriorities,
    primary: Arc<Primary>,
    _claim: Claim,
}

impl State {
    /// See [`CudaDevice::take`](crate::CudaDevice::take).
    pub(crate) fn take(
        found: &Found,
        backend: Backend,
        maker: Arc<dyn SessionMaker>,
        options: &CudaOptions,
    ) -> Result<Arc<Self>, DeviceError> {
        let name = format!("gpu{}", found.ordinal);
        let failed = |why: String| DeviceError(format!("{name}: {why}"));
        let claim = Claim::on(found.ordinal)
            .ok_or_else(|| failed("this process uses the device already".to_owned()))?;
        let driver = Driver::load().map_err(|error| failed(error.to_string()))?;
        let refused = |error: DriverError| failed(error.to_string());
        let primary = Primary::retain(driver, found.ordinal).map_err(refused)?;
        let partitioning = match backend {
            Backend::CudaGreen => {
                let split = Split::once(&primary, found.capability, options.ignore_coscheduling);
                Partitioning::Green(split.map_err(|error| failed(error.to_string()))?)
            }
            Backend::CudaMps => Partitioning::Share(Grid::in_percent(found.sms), options.mps_share),
            Backend::Mig | Backend::CudaStream => {
                let grid = Grid::new(&[found.sms], 0);
                Partitioning::Whole(grid.ok_or_else(|| failed("the device has no SMs".to_owned()))?)
            }
        };
        let priorities = primary.stream_priorities().map_err(refused)?;
        let check = Check::new(&primary).map_err(refused)?;
        let (free, total) = primary.memory().map_err(refused)?;
        let ledger = Ledger::new(Budget::new(total, free));
        let info = DeviceInfo {
            // GPUs, and instances of one GPU, fail one by one.
            fault_domain: name.clone(),
            name,
            backend: backend.as_str(),
            device_type: device_type(&found.name, partitioning.grid().units()),
            units: partitioning.grid().units(),
            sizes: partitioning.grid().sizes(),
            // What the driver and this context take is not among the usable bytes, and green contexts share a context.
            memory_bytes: ledger.budget().usable(),
            base_bytes: 0,
            gpulet_bytes: 0,
            guarantees: backend.guarantees(),
        };
        Ok(Arc::new(Self {
            info,
            idle: Mutex::new(IdleContexts::new(options.idle_contexts)),
            check: Mutex::new(check),
            partitioning,
            open: Mutex::default(),
            ledger,
            maker,
            making: Mutex::new(()),
            failure: OnceLock::new(),
            priorities,
            primary,
            _claim: claim,
        }))
    }

    pub(crate) fn info(&self) -> &DeviceInfo {
        &self.info
    }

    pub(crate) fn grid(&self) -> &Grid {
        self.partitioning.grid()
    }

    pub(crate) fn memory(&self) -> MemoryState {
        self.ledger.state()
    }

    pub(crate) fn idle_contexts(&self) -> Vec<UnitRange> {
        lock(&self.idle).units()
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.get().cloned()
    }

    pub(crate) fn open(
        self: &Arc<Self>,
        spec: &PartitionSpec,
        idle_priority: bool,
        watch: Arc<dyn PartitionWatch>,
    ) -> Result<Arc<Gpulet>, DeviceError> {
        let failed = |why: String| DeviceError(format!("{}: gpulet {}: {why}", self.info.name, spec.lane));
        let units =
            self.grid().range(spec.first_unit, spec.units).map_err(|error| failed(error.to_string()))?;
        self.partitioning.check(units).map_err(failed)?;
        self.collect_finished();
        if let Some(reason) = self.failure() {
            return Err(failed(reason));
        }
        let context =
            self.context(units, idle_priority).map_err(|error| failed(format!("{units}: {error}")))?;
        let gpulet = self.add(spec.lane, context, watch);
        self.failure().map_or(Ok(gpulet), |reason| Err(failed(reason)))
    }

    /// A context on these units: an idle one if there is one, else a new one.
    fn context(&self, units: UnitRange, idle_priority: bool) -> Result<Arc<UnitContext>, CheckError> {
        if let Some(idle) = lock(&self.idle).take(units, idle_priority) {
            return Ok(idle);
        }
        loop {
            let error = match self.create_context(units, idle_priority) {
                Ok(context) => return Ok(context),
                Err(error) => error,
            };
            if let CheckError::Driver(cause) = &error
                && cause.is_sticky()
            {
                self.fail(&cause.to_string());
                return Err(error);
            }
            let Some(oldest) = lock(&self.idle).take_oldest() else { return Err(error) };
            warn!(device = %self.info.name, units = %oldest.units, %error, "an idle context is dropped for a new one");
        }
    }

    fn create_context(&self, units: UnitRange, idle_priority: bool) -> Result<Arc<UnitContext>, CheckError> {
        let priority = self.priorities.of(idle_priority);
        let (stream, sms) = match &self.partitioning {
            Partitioning::Green(split) => {
                let context = GreenContext::create(split.describe(units)?)?;
                (Stream::on_green(&context, priority)?, context.sms())
            }
            Partitioning::Whole(grid) | Partitioning::Share(grid, _) => {
                (Stream::on_device(&self.primary, priority)?, grid.sms(units))
            }
        };
        lock(&self.check).run(&stream)?;
        let expected = self.grid().sms(units);
        if sms != expected {
            warn!(device = %self.info.name, %units, expected, sms, "the driver assigned an unexpected number of SMs");
        }
        Ok(Arc::new(UnitContext { stream, units, sms, idle_priority }))
    }

    fn add(
        self: &Arc<Self>,
        lane: u32,
        context: Arc<UnitContext>,
        watch: Arc<dyn PartitionWatch>,
    ) -> Arc<Gpulet> {
        let mut open = lock(&self.open);
        let number = open.last_key_value().map_or(0, |(last, _)| last + 1);
        open.insert(number, Open { lane, watch: Some(watch) });
        Gpulet::new(Arc::clone(self) as Arc<dyn Owner>, number, context)
    }

    /// Makes contexts idle whose last work has finished.
    fn collect_finished(&self) {
        let (dropped, errors) = lock(&self.idle).collect_finished();
        drop(dropped);
        errors.iter().for_each(|error| self.note(error));
    }

    fn note(&self, error: &DriverError) {
        if error.is_sticky() {
            self.fail(&error.to_string());
        } else {
            warn!(device = %self.info.name, %error, "the context of a closed gpulet is not reused");
        }
    }

    /// Marks the device as failed, and tells every watch that was not told yet.
    pub(crate) fn fail(&self, why: &str) {
        let reason = format!("{} failed: {why}", self.info.name);
        if self.failure.set(reason.clone()).is_ok() {
            error!("{reason}; only a new process can use it again");
        }
        let untold: Vec<_> = lock(&self.open)
            .values_mut()
            .filter_map(|open| open.watch.take().map(|watch| (open.lane, watch)))
            .collect();
        let reason = self.failure().unwrap_or(reason);
        untold.iter().for_each(|(lane, watch)| watch.failed(*lane, &reason));
    }

    /// Makes a session and enters it into the ledger.
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
            Ok((Ok(session), growth)) => {
                if lease.measured(growth) {
                    warn!(device = %self.info.name, model = %files.name, growth, "its sessions do not share weights");
                }
                Ok((session, lease))
            }
            Ok((Err(error), _)) => {
                if let Err(cause) = free() {
                    self.note(&cause);
                }
                Err(error)
            }
            Err(cause) => {
                self.note(&cause);
                Err(failed(format!("model `{}`: {cause}", files.name)))
            }
        }
    }
}

impl Owner for State {
    fn ordinal(&self) -> i32 {
        self.primary.ordinal()
    }

    fn closed(&self, number: u64, context: Arc<UnitContext>) {
        let removed = lock(&self.open).remove(&number);
        drop(removed);
        self.collect_finished();
        if self.failure.get().is_some() {
            return;
        }
        let dropped = match context.stream.is_idle() {
            Ok(true) => lock(&self.idle).keep(context),
            Ok(false) => {
                lock(&self.idle).keep_busy(context);
                Vec::new()
            }
            Err(error) => {
                self.note(&error);
                vec![context]
            }
        };
        drop(dropped);
    }
}
