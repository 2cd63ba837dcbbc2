//! The configured devices, and the initial gpulets.

mod contended;
mod failure_sink;
pub mod gpus;
mod memory;
#[cfg(test)]
mod tests;
pub mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpulet::{
    BatchTimes, CoresDevice, Device, DeviceError, DeviceInfo, EmulatedDevice, Emulation, LaneConfig,
    LaneHandle, LaneSink, Partition, PartitionSpec, PartitionWatch, TimeSharing, spawn_lane,
};
use gpulet_core::id::DeviceId;
use gpulet_core::profile::Profile;
use lane_plan::LaneClasses;
use models::{Loader, ModelClass, ModelFiles};

use crate::config::{Config, Emulated, Gpus, Isolation};
use crate::metrics::{BusySink, WatchedGpu};
use crate::{lanes, profiles};
use contended::ContendedTimes;
use device_sections::InterferenceSection;
use failure_sink::FailureSink;
use gpulet_worker::WorkerScope;
use gpus::Gpu;
use worker::{Described, Worker};

/// Most commands that wait for a lane's thread in addition to one batch: installs and removals of sessions.
const LANE_MAILBOX: usize = 64;

/// The longest batch that the router's thread runs itself on an idle server. To hand a batch to a lane's thread and back takes
/// about as long, and no request that arrives in that time waits longer.
const RUN_HERE_MAX: Duration = Duration::from_micros(100);

/// Name of the device of all cores.
const CORES: &str = "cpu0";

/// A share of a device.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Share {
    /// Name of the device.
    pub device: DeviceId,
    /// First unit of the share.
    pub first_unit: u32,
    /// Number of units.
    pub units: u32,
    /// Whether its batches run only while no other share wants its units.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub idle_priority: bool,
}

/// The devices that models run on.
pub struct Devices {
    all: Vec<Arc<dyn Device>>,
    start: Vec<Share>,
    /// Cost per hour of each device that the configuration names one for.
    costs: BTreeMap<String, f64>,
    profiles: Vec<Profile>,
    /// GPUs among them.
    gpus: Vec<WatchedGpu>,
    classes: Mutex<LaneClasses>,
    /// Share of each lane that was opened, by number.
    shares: Mutex<BTreeMap<u32, Share>>,
}

impl Devices {
    /// Creates the configured devices. `core_sets` are the cores of each lane, if models run on cores.
    ///
    /// # Errors
    /// Names the invalid option and says what would be right.
    pub fn of(config: &Config, core_sets: &[Vec<usize>], loader: Loader) -> anyhow::Result<Self> {
        let profiles = profiles::named("partition.profiles", &config.partition.profiles, Path::new(""))?;
        let ort_library = loader.ort.as_ref().ok().map(|library| library.path.clone());
        let found = gpus_of_machine(config);
        let (described, start) = match (config.devices.emulated.as_slice(), found) {
            ([], Some(found)) => with_idle_priority(config, whole_gpus(found, ort_library.as_ref())),
            ([], None) => with_idle_priority(config, cores(config.lanes.shared, core_sets, ort_library)?),
            (emulated, _) => emulate(emulated, &profiles, &config.partition.profiles)?,
        };
        let model_host = loader.host.clone();
        let own = Own::new(loader, profiles.clone());
        let gpus = described.iter().filter_map(watched).collect();
        let devices = described.into_iter().map(|described| {
            let worker = |described| Worker::new(&config.server, described, model_host.clone());
            match (own.device(&described), config.devices.isolation) {
                (None, _) => worker::isolated_gpu(worker(described)),
                (Some(device), Isolation::None) => Ok(device),
                (Some(device), Isolation::Process) => {
                    worker::isolated(device.info().clone(), WorkerScope::Gpulet, worker(described), None)
                }
            }
        });
        let all = devices.collect::<Result<Vec<Arc<dyn Device>>, DeviceError>>()?;
        let emulated = config.devices.emulated.iter();
        let costs = emulated.flat_map(|entry| std::iter::repeat_n(entry.cost, entry.count.get()));
        let costs = all.iter().map(|device| device.info().name.clone()).zip(costs).collect();
        let infos: Vec<&DeviceInfo> = all.iter().map(|device| device.info()).collect();
        check_replicas(config, infos.iter().map(|info| info.fault_domain.as_str()))?;
        for profile in &profiles {
            let other = infos
                .iter()
                .find(|info| info.device_type == profile.device() && info.units != profile.units_total());
            if let Some(info) = other.filter(|_| config.partition.live) {
                anyhow::bail!(
                    "partition.profiles: profile of `{}` is of {} units of `{}`: expected {}; run `tessera profile` with \
                     these",
                    profile.model(),
                    profile.units_total(),
                    info.device_type,
                    info.units
                );
            }
        }
        Ok(Self { classes: lane_classes(&all), all, start, costs, profiles, gpus, shares: Mutex::default() })
    }

    /// Checks lanes, profiles and emulated devices as [`Devices::of`] does, without creating a device. Returns the number of
    /// lanes, unless GPUs decide it, and the profiles.
    ///
    /// # Errors
    /// Names the invalid option and says what would be right.
    pub fn check(config: &Config) -> anyhow::Result<(Option<usize>, Vec<Profile>)> {
        let sets = lanes::core_sets(&config.lanes, &gpulet::allowed_cores()?).map_err(anyhow::Error::msg)?;
        let profiles = profiles::named("partition.profiles", &config.partition.profiles, Path::new(""))?;
        let (described, start) = emulate(&config.devices.emulated, &profiles, &config.partition.profiles)?;
        if config.devices.gpus == Gpus::Off {
            let emulated = described.iter().map(Described::fault_domain);
            check_replicas(config, emulated.chain(described.is_empty().then_some(CORES)))?;
        }
        let lanes = if config.devices.emulated.is_empty() { sets.len() } else { start.len() };
        Ok((Some(lanes).filter(|_| config.devices.gpus == Gpus::Off), profiles))
    }

    /// Creates these devices with these initial gpulets, without profiles.
    #[cfg(test)]
    pub fn from_parts(all: Vec<Arc<dyn Device>>, start: Vec<Share>) -> Self {
        Self {
            classes: lane_classes(&all),
            all,
            start,
            costs: BTreeMap::new(),
            profiles: Vec::new(),
            gpus: Vec::new(),
            shares: Mutex::default(),
        }
    }

    /// The initial gpulets. Each has a lane.
    pub fn start(&self) -> &[Share] {
        &self.start
    }

    /// The lane of idle priority on the units of each other lane. Empty without such lanes.
    pub fn idle_lanes(&self) -> BTreeMap<u32, u32> {
        let numbered = || (0..).zip(&self.start);
        let same = |lane: &Share| {
            let of = |other: &Share| Share { idle_priority: false, ..other.clone() } == *lane;
            numbered().find(|(_, other)| other.idle_priority && of(other)).map(|(idle, _)| idle)
        };
        numbered().filter_map(|(lane, share)| Some((lane, same(share)?))).collect()
    }

    /// The shares of the gpulets that a plan may move: all but those of idle priority.
    pub fn movable(&self) -> impl Iterator<Item = &Share> {
        self.start.iter().filter(|share| !share.idle_priority)
    }

    /// What a device costs per hour; 1 unless the configuration says otherwise.
    pub fn cost(&self, device: &str) -> f64 {
        self.costs.get(device).copied().unwrap_or(1.0)
    }

    /// Description of each device.
    pub fn infos(&self) -> impl Iterator<Item = &DeviceInfo> {
        self.all.iter().map(|device| device.info())
    }

    /// GPUs that models run on.
    pub fn gpus(&self) -> &[WatchedGpu] {
        &self.gpus
    }

    /// The lane classes of these devices.
    pub fn classes(&self) -> MutexGuard<'_, LaneClasses> {
        self.classes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Profiles of models on these device types, from files.
    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    /// The largest number of lanes at a time.
    pub fn lanes_max(&self, live: bool) -> u32 {
        let movable = u32::try_from(self.movable().count()).unwrap_or(u32::MAX);
        let idle = u32::try_from(self.start.len()).unwrap_or(u32::MAX).saturating_sub(movable);
        let units = self.infos().filter(|_| live).map(|info| info.units);
        lane_plan::lanes_max(units, movable).saturating_add(idle)
    }

    /// Opens a gpulet and starts the thread that runs it.
    ///
    /// # Errors
    /// Says why the gpulet cannot be opened.
    pub fn open(
        &self,
        lane: u32,
        share: &Share,
        sink: Arc<dyn LaneSink>,
        watch: Arc<dyn PartitionWatch>,
    ) -> Result<LaneHandle, DeviceError> {
        let device = self.all.iter().find(|device| share.device == device.info().name.as_str());
        let device = device.ok_or_else(|| DeviceError(format!("there is no device `{}`", share.device)))?;
        let spec = PartitionSpec { lane, first_unit: share.first_unit, units: share.units };
        let partition: Arc<dyn Partition> = match share.idle_priority {
            false => device.open(&spec, Arc::clone(&watch)),
            true => device.open_at_idle_priority(&spec, Arc::clone(&watch)),
        }?;
        let lane_class = self.classes().of(&share.device, share.units).0;
        let config =
            LaneConfig { id: lane, partition, mailbox: LANE_MAILBOX, lane_class, run_here_max: RUN_HERE_MAX };
        let sink = FailureSink::before(BusySink::before(sink, lane), watch);
        let spawned = spawn_lane(config, sink).map_err(|error| DeviceError(error.to_string()))?;
        self.shares.lock().unwrap_or_else(PoisonError::into_inner).insert(lane, share.clone());
        Ok(spawned)
    }

    /// The share that a lane has, or had when it was last open.
    pub fn share_of(&self, lane: u32) -> Option<Share> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner).get(&lane).cloned()
    }
}

/// Refuses models that must be in more fault domains than there are.
fn check_replicas<'a>(config: &Config, domains: impl Iterator<Item = &'a str>) -> anyhow::Result<()> {
    let has = domains.collect::<BTreeSet<_>>().len();
    for (name, settings) in &config.models {
        let wanted = settings.replicas_min.map_or(1, NonZeroU32::get);
        if usize::try_from(wanted)? > has {
            anyhow::bail!(
                "models.{name}.replicas_min: {wanted}: fault domains of the devices: {has}: expected at most as many"
            );
        }
    }
    Ok(())
}

fn lane_classes(devices: &[Arc<dyn Device>]) -> Mutex<LaneClasses> {
    let infos = || devices.iter().map(|device| device.info());
    let classes = LaneClasses::new(infos().map(|info| (info.name.as_str(), info.device_type.as_str())));
    let any_units = infos().filter(|info| info.guarantees.time_sharing == TimeSharing::AnyUnits);
    Mutex::new(classes.on_any_units(any_units.map(|info| info.name.as_str())))
}

/// What devices in this process need.
pub(crate) struct Own {
    loader: Arc<Loader>,
    profiles: Vec<Profile>,
    times: Arc<dyn BatchTimes>,
}

impl Own {
    /// `loader` loads the models; `profiles` give the batch times of emulated devices.
    pub fn new(loader: Loader, profiles: Vec<Profile>) -> Self {
        Self { loader: Arc::new(loader), times: Arc::new(Profiled(profiles.clone())), profiles }
    }

    /// Batch times of an emulated device. An invalid section, which the configuration rejects, is ignored.
    fn contended_times(&self, interference: Option<&InterferenceSection>) -> Arc<dyn BatchTimes> {
        let contended = interference.and_then(|said| ContendedTimes::new(self.profiles.clone(), said).ok());
        contended
            .map_or_else(|| Arc::clone(&self.times), |contended| Arc::new(contended) as Arc<dyn BatchTimes>)
    }

    /// Creates a device whose gpulets run in this process. `None` for a device that only a worker process may open.
    pub fn device(&self, described: &Described) -> Option<Arc<dyn Device>> {
        match described {
            Described::Cores { name, cores, memory_bytes, .. } => {
                let loader = Arc::clone(&self.loader);
                Some(Arc::new(CoresDevice::new(name, cores.clone(), *memory_bytes, loader)))
            }
            Described::Emulated { emulation, interference, .. } => {
                let times = self.contended_times(interference.as_ref());
                Some(Arc::new(EmulatedDevice::new(emulation.clone(), times)))
            }
            Described::Gpu { .. } => None,
        }
    }
}

type Found = (Vec<Described>, Vec<Share>);

fn watched(described: &Described) -> Option<WatchedGpu> {
    let Described::Gpu { gpu, .. } = described else { return None };
    Some(WatchedGpu { device: gpu.name.clone(), uuid: gpu.uuid.clone() })
}

/// GPUs of the machine, if they are configured and usable.
fn gpus_of_machine(config: &Config) -> Option<Vec<Gpu>> {
    if config.devices.gpus == Gpus::Off {
        return None;
    }
    match gpus::find(config.devices.gpu_backend.as_deref()) {
        Ok(found) => Some(found),
        Err(reason) => {
            tracing::info!(%reason, "serving on CPU cores");
            None
        }
    }
}

fn whole_gpus(found: Vec<Gpu>, ort_library: Option<&PathBuf>) -> Found {
    let share = |gpu: &Gpu| Share {
        device: gpu.name.as_str().into(),
        first_unit: 0,
        units: gpu.units,
        idle_priority: false,
    };
    let start = found.iter().map(share).collect();
    for gpu in &found {
        tracing::info!(
            gpu = gpu.name,
            device_type = gpu.device_type,
            backend = gpu.backend,
            units = gpu.units,
            "found"
        );
    }
    let described = |gpu| Described::Gpu { gpu, ort_library: ort_library.cloned() };
    (found.into_iter().map(described).collect(), start)
}

/// The cores of all lanes form one device. If lanes share cores, each lane has all of them.
fn cores(shared: bool, core_sets: &[Vec<usize>], ort_library: Option<PathBuf>) -> anyhow::Result<Found> {
    let cores = match core_sets.first() {
        Some(set) if shared => set.clone(),
        _ => core_sets.concat(),
    };
    let mut first_unit = 0;
    let mut start = Vec::with_capacity(core_sets.len());
    for set in core_sets {
        let units = u32::try_from(set.len())?;
        start.push(Share { device: CORES.into(), first_unit, units, idle_priority: false });
        first_unit += if shared { 0 } else { units };
    }
    let (name, memory_bytes) = (CORES.to_owned(), memory::for_models());
    Ok((vec![Described::Cores { name, cores, memory_bytes, ort_library }], start))
}

/// Adds a lane of idle priority for each set of cores and each GPU, if there are models of best effort. These lanes stay where they
/// are while gpulets move: they have the units that no gpulet has, and the idle time of the others.
fn with_idle_priority(config: &Config, (devices, mut start): Found) -> Found {
    let best_effort = config.models.values().any(|model| model.class == Some(ModelClass::BestEffort));
    if !best_effort {
        return (devices, start);
    }
    let mut idle: Vec<Share> = Vec::new();
    for share in &start {
        let share = Share { idle_priority: true, ..share.clone() };
        if !idle.contains(&share) {
            idle.push(share);
        }
    }
    start.extend(idle);
    (devices, start)
}

fn emulate(entries: &[Emulated], profiles: &[Profile], files: &[String]) -> anyhow::Result<Found> {
    let (mut devices, mut start): Found = (Vec::new(), Vec::new());
    for (at, entry) in entries.iter().enumerate() {
        let field = format!("devices.emulated[{at}]");
        let Some(profile) = profiles.iter().find(|profile| profile.device() == entry.kind) else {
            let mut known: Vec<&str> = profiles.iter().map(Profile::device).collect();
            known.sort_unstable();
            known.dedup();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            anyhow::bail!(
                "{field}.kind: no profile of a `{}` in partition.profiles, which have: {known}",
                entry.kind
            );
        };
        let units = profile.units_total();
        let sizes = entry.sizes.clone().unwrap_or_else(|| (1..=units).collect());
        if sizes.last() != Some(&units) {
            anyhow::bail!("{field}.sizes: {sizes:?}: expected {units}, the whole device, as the last");
        }
        if let Some(said) = &entry.interference {
            contended::check(&format!("{field}.interference"), said, &entry.kind, profiles)?;
        }
        for _ in 0..entry.count.get() {
            let name = format!("gpu{}", devices.len());
            start.push(Share { device: name.as_str().into(), first_unit: 0, units, idle_priority: false });
            devices.push(Described::Emulated {
                emulation: Emulation {
                    device_type: entry.kind.clone(),
                    sizes: sizes.clone(),
                    memory_bytes: entry.memory.0,
                    base_bytes: entry.base_memory.0,
                    gpulet_bytes: entry.gpulet_memory.0,
                    fault_domain: entry.fault_domain.clone().unwrap_or_else(|| name.clone()),
                    lost_while: entry.lost_while.clone(),
                    name,
                },
                profiles: files.to_vec(),
                interference: entry.interference.clone(),
            });
        }
    }
    Ok((devices, start))
}

/// The profile of a model on a device type. Profiles with a hash must match the model's files. The last match counts.
pub fn profile_of<'a>(
    profiles: &'a [Profile],
    device_type: &str,
    model: &str,
    sha256: &str,
) -> Option<&'a Profile> {
    let same = |profile: &&Profile| {
        profile.model() == model
            && profile.device() == device_type
            && profile.header().model_sha256.as_ref().is_none_or(|known| known == sha256)
    };
    profiles.iter().rfind(same)
}

/// Batch times from profiles.
struct Profiled(Vec<Profile>);

impl BatchTimes for Profiled {
    fn time(&self, device_type: &str, files: &ModelFiles, rows: u32, units: u32) -> Option<Duration> {
        let profile = profile_of(&self.0, device_type, files.name.as_str(), &files.hash.to_string())?;
        lane_plan::batch_time(profile, rows, units).map(|time| Duration::from_nanos(time.0))
    }
}
