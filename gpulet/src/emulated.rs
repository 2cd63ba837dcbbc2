//! Emulated devices: batches take as long as the profiles say, in real time, and their outputs are zeros.
//!
//! Everything else is real: requests, queues and rollouts. Emulated devices represent devices that are not bought yet,
//! and devices that a test machine does not have.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use models::engine::{Batch, Interrupt, RunError, Session, synthetic};
use models::{LoadOptions, ModelFiles, Signature, inspect};
use oip::Tensor;
use serde::{Deserialize, Serialize};

use crate::device::{
    Capacity, Compute, Device, DeviceError, DeviceInfo, FaultDomain, Guarantees, Partition, PartitionSpec,
    PartitionWatch, Resize, Sharing, TimeSharing,
};

/// Batch times by device type.
pub trait BatchTimes: Send + Sync + 'static {
    /// Time of a batch of `rows` rows on `units` units. `None` if the model has no profile on this device type.
    fn time(&self, device_type: &str, files: &ModelFiles, rows: u32, units: u32) -> Option<Duration>;

    /// Slowdown of a batch by the batches that are co-located with it as it starts; at least 1.
    fn slowdown(&self, _device_type: &str, _own: &EmulatedBatch, _co_located: &[EmulatedBatch]) -> f64 {
        1.0
    }
}

/// A batch that runs on a gpulet of an emulated device.
#[derive(Clone, Debug)]
pub struct EmulatedBatch {
    /// Files of the model.
    pub files: Arc<ModelFiles>,
    /// Rows of the batch.
    pub rows: u32,
    /// Units of the gpulet.
    pub units: u32,
}

/// Upper limit of the slowdown by co-located batches.
const SLOWDOWN_MAX: f64 = 1_000.0;

/// Running batches of a device and when they end, by lane.
#[derive(Default)]
struct Running(Mutex<BTreeMap<u32, (EmulatedBatch, Instant)>>);

impl Running {
    /// Records the start of a batch that takes `alone` when solo. Returns its time under contention.
    fn starts(
        &self,
        lane: u32,
        own: EmulatedBatch,
        alone: Duration,
        (device_type, times): (&str, &dyn BatchTimes),
    ) -> Duration {
        let now = Instant::now();
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|other, (_, until)| *other != lane && *until > now);
        let co_located: Vec<EmulatedBatch> = running.values().map(|(batch, _)| batch.clone()).collect();
        let slowdown = times.slowdown(device_type, &own, &co_located).clamp(1.0, SLOWDOWN_MAX);
        let time = Duration::try_from_secs_f64(alone.as_secs_f64() * slowdown).unwrap_or(alone);
        running.insert(lane, (own, now + time));
        time
    }
}

/// Description of an emulated device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Emulation {
    /// Name in plans.
    pub name: String,
    /// Device type in profiles.
    pub device_type: String,
    /// Numbers of units that a gpulet may have, ascending.
    pub sizes: Vec<u32>,
    /// Memory for models, in bytes.
    pub memory_bytes: u64,
    /// Bytes of it that the device takes once.
    pub base_bytes: u64,
    /// Bytes of it that each gpulet takes in addition to its models.
    pub gpulet_bytes: u64,
    /// Name of the domain in which devices fail together.
    pub fault_domain: String,
    /// The device is lost while this file exists.
    pub lost_while: Option<PathBuf>,
}

/// Loss of a device: while the file exists.
#[derive(Clone)]
struct Loss(Option<PathBuf>);

impl Loss {
    /// Why the device is lost.
    fn reason(&self) -> Option<String> {
        let file = self.0.as_ref().filter(|file| file.exists())?;
        Some(format!("the emulated device is lost: `{}` exists", file.display()))
    }
}

/// An emulated device.
pub struct EmulatedDevice {
    info: DeviceInfo,
    loss: Loss,
    times: Arc<dyn BatchTimes>,
    running: Arc<Running>,
}

impl EmulatedDevice {
    /// Name of the backend.
    pub const BACKEND: &str = "emulated";

    /// Creates a device with the batch times of its type.
    pub fn new(emulation: Emulation, times: Arc<dyn BatchTimes>) -> Self {
        let Emulation {
            name,
            device_type,
            sizes,
            memory_bytes,
            base_bytes,
            gpulet_bytes,
            fault_domain,
            lost_while,
        } = emulation;
        let info = DeviceInfo {
            name,
            backend: Self::BACKEND,
            device_type,
            units: sizes.last().copied().unwrap_or_default(),
            sizes,
            memory_bytes,
            base_bytes,
            gpulet_bytes,
            fault_domain,
            guarantees: Guarantees {
                compute: Compute::Exclusive,
                memory_bandwidth: Sharing::Isolated,
                cache: Sharing::Isolated,
                copy_engines: Sharing::Isolated,
                memory_capacity: Capacity::Accounted,
                fault_domain: FaultDomain::Process,
                resize: Resize::Live,
                overlap: true,
                time_sharing: TimeSharing::AnyUnits,
            },
        };
        Self { info, times, running: Arc::default(), loss: Loss(lost_while) }
    }
}

impl Device for EmulatedDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn open(
        &self,
        spec: &PartitionSpec,
        _watch: Arc<dyn PartitionWatch>,
    ) -> Result<Arc<dyn Partition>, DeviceError> {
        let DeviceInfo { name, device_type, units, sizes, .. } = &self.info;
        if let Some(reason) = self.loss.reason() {
            return Err(DeviceError(format!("device `{name}`: {reason}")));
        }
        let end = u64::from(spec.first_unit) + u64::from(spec.units);
        if !sizes.contains(&spec.units) || end > u64::from(*units) {
            let first = spec.first_unit;
            return Err(DeviceError(format!(
                "device `{name}` has units 0 to {units} and gpulets of {sizes:?}: none of {first} to {end}"
            )));
        }
        Ok(Arc::new(EmulatedPartition {
            device_type: device_type.clone(),
            lane: spec.lane,
            units: spec.units,
            times: Arc::clone(&self.times),
            running: Arc::clone(&self.running),
            loss: self.loss.clone(),
        }))
    }
}

struct EmulatedPartition {
    device_type: String,
    lane: u32,
    units: u32,
    times: Arc<dyn BatchTimes>,
    running: Arc<Running>,
    loss: Loss,
}

impl Partition for EmulatedPartition {
    fn cores(&self) -> &[usize] {
        &[]
    }

    fn load(&self, files: &ModelFiles, options: &LoadOptions) -> Result<Box<dyn Session>, DeviceError> {
        let signature = inspect(files, options).map_err(|error| DeviceError(error.to_string()))?;
        if self.times.time(&self.device_type, files, 1, self.units).is_none() {
            return Err(DeviceError(format!(
                "model `{}`: no profile of it on `{}`: name its file in partition.profiles",
                files.name, self.device_type
            )));
        }
        let (device_type, lane, units, files) =
            (self.device_type.clone(), self.lane, self.units, Arc::new(files.clone()));
        let (times, running) = (Arc::clone(&self.times), Arc::clone(&self.running));
        let time = move |rows| {
            let alone = times.time(&device_type, &files, rows, units).unwrap_or_default();
            let own = EmulatedBatch { files: Arc::clone(&files), rows, units };
            running.starts(lane, own, alone, (&device_type, times.as_ref()))
        };
        let session = synthetic::emulate(signature, Box::new(time));
        Ok(Box::new(LosableSession { session, loss: self.loss.clone() }))
    }
}

/// A session that fails while its device is lost.
struct LosableSession {
    session: Box<dyn Session>,
    loss: Loss,
}

impl Session for LosableSession {
    fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
        match self.loss.reason() {
            Some(reason) => Err(RunError::DeviceFailed(reason)),
            None => self.session.run(batch),
        }
    }

    fn signature(&self) -> &Signature {
        self.session.signature()
    }

    fn engine(&self) -> &'static str {
        self.session.engine()
    }

    fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        self.session.interrupt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::{Format, ModelName, Version};
    use oip::{Datatype, Shape};

    struct PerRow;

    impl BatchTimes for PerRow {
        fn time(&self, device_type: &str, files: &ModelFiles, rows: u32, units: u32) -> Option<Duration> {
            let known = device_type == "big" && files.name.as_str() == "m";
            known.then(|| Duration::from_micros(u64::from(8_000 * rows / units)))
        }

        /// Half as long again for each co-located row.
        fn slowdown(&self, _: &str, _: &EmulatedBatch, co_located: &[EmulatedBatch]) -> f64 {
            1.0 + co_located.iter().map(|batch| f64::from(batch.rows) / 2.0).sum::<f64>()
        }
    }

    #[test]
    fn a_batch_is_slowed_by_what_runs_on_other_lanes_as_it_starts() {
        let (running, own) = (Running::default(), Arc::new(files("m")));
        let alone = Duration::from_secs(600);
        let starts = |lane: u32, rows: u32| {
            let batch = EmulatedBatch { files: Arc::clone(&own), rows, units: 1 };
            running.starts(lane, batch, alone, ("big", &PerRow))
        };
        assert_eq!(starts(0, 2), alone, "the batch is solo");
        assert_eq!(starts(1, 1), alone * 2, "two rows are co-located");
        assert_eq!(starts(0, 2), alone * 3 / 2, "the last batch of the same lane does not count");
        let short = EmulatedBatch { files: Arc::clone(&own), rows: 4, units: 1 };
        assert_eq!(running.starts(2, short, Duration::ZERO, ("big", &PerRow)), Duration::ZERO);
        assert_eq!(starts(1, 1), alone * 2, "a batch that has ended does not count");
    }

    struct NoWatch;

    impl PartitionWatch for NoWatch {
        fn failed(&self, _lane: u32, _reason: &str) {}
    }

    fn files(name: &str) -> ModelFiles {
        let text = "max_batch = 8\n\
                    inputs = [{ name = \"x\", datatype = \"FP32\", dims = [-1, 2] }]\n\
                    outputs = [{ name = \"y\", datatype = \"INT64\", dims = [-1] }]\n";
        ModelFiles::from_bytes(ModelName::new(name).unwrap(), Version(1), Format::Synthetic, text)
    }

    fn device(lost_while: Option<PathBuf>) -> EmulatedDevice {
        let emulation = Emulation {
            name: "gpu0".to_owned(),
            device_type: "big".to_owned(),
            sizes: vec![1, 2, 4],
            memory_bytes: 1 << 30,
            base_bytes: 0,
            gpulet_bytes: 0,
            fault_domain: "gpu0".to_owned(),
            lost_while,
        };
        EmulatedDevice::new(emulation, Arc::new(PerRow))
    }

    fn open(first_unit: u32, units: u32) -> Result<Arc<dyn Partition>, DeviceError> {
        let device = device(None);
        device.open(&PartitionSpec { lane: 0, first_unit, units }, Arc::new(NoWatch))
    }

    #[test]
    fn a_batch_takes_the_time_of_its_rows_on_the_units_of_its_gpulet() {
        let data = vec![0_u8; 16].into();
        let input = Tensor {
            name: "x".to_owned(),
            datatype: Datatype::Fp32,
            shape: Shape::from_extents(&[2, 2]),
            data,
        };
        for (units, least) in [(4, 4), (1, 16)] {
            let mut session = open(0, units).unwrap().load(&files("m"), &LoadOptions::default()).unwrap();
            let begun = Instant::now();
            let outputs = session.run(&Batch { inputs: vec![Some(input.clone())], rows: 2 }).unwrap();
            assert!(begun.elapsed() >= Duration::from_millis(least));
            assert_eq!((outputs[0].shape.extents(), outputs[0].data.len()), (&[2][..], 16));
        }
    }

    #[test]
    fn gpulets_and_models_that_the_device_does_not_know_are_refused() {
        for (first_unit, units) in [(0, 3), (1, 4), (4, 1), (u32::MAX, 2)] {
            let refused = open(first_unit, units).err().map(|error| error.to_string());
            assert!(refused.is_some_and(|why| why.contains("gpulets of [1, 2, 4]")));
        }
        let refused = open(2, 2).unwrap().load(&files("other"), &LoadOptions::default()).err().unwrap();
        assert_eq!(
            refused.to_string(),
            "model `other`: no profile of it on `big`: name its file in partition.profiles"
        );
    }
}
