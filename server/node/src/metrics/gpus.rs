//! Gauges of the GPUs that models run on, from NVIDIA's management library.
//!
//! A separate thread reads them once a second, so that a driver that hangs delays neither requests nor `/metrics`.
//! Without the library there are no gauges, and the log says so once. A value that a GPU no longer reports becomes
//! `NaN`, because the old number would look current.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use gpulet_cuda::{Activity, ActivityWatch, Monitor, MonitorError, Readings};
use metrics::Gauge;

use super::names;

/// Time between readings.
const EVERY: Duration = Duration::from_secs(1);

/// A GPU that models run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedGpu {
    /// Name in plans, and label of its gauges.
    pub device: String,
    /// UUID as `nvidia-smi -L` prints it, of a GPU or of a MIG instance.
    pub uuid: String,
}

/// Stops the thread when dropped.
pub struct GpuWatch {
    _stop: Sender<()>,
}

/// Starts to read these GPUs; `triton_names` adds Triton's gauges. `None` without GPUs, or if the thread cannot start.
pub fn watch(gpus: Vec<WatchedGpu>, triton_names: bool) -> Option<GpuWatch> {
    if gpus.is_empty() {
        return None;
    }
    let (stop, stopped) = mpsc::channel::<()>();
    let read = move || {
        let monitor = match Monitor::open() {
            Ok(monitor) => monitor,
            Err(absent) => return tracing::info!(%absent, "no metrics of GPUs"),
        };
        let mut gauges: Vec<GpuMetrics> =
            gpus.iter().map(|gpu| GpuMetrics::new(&gpu.device, triton_names.then_some(&gpu.uuid))).collect();
        let mut failing = false;
        let mut parts = Parts { watch: monitor.activity(), silent: BTreeSet::new() };
        loop {
            let read = monitor.read();
            note(&read, &mut failing);
            let read = read.unwrap_or_default();
            for (gpu, gauges) in gpus.iter().zip(&mut gauges) {
                gauges.set(of(&read, &gpu.uuid).as_ref(), parts.activity(gpu));
            }
            if stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    };
    match std::thread::Builder::new().name("gpu-metrics".to_owned()).spawn(read) {
        Ok(_) => Some(GpuWatch { _stop: stop }),
        Err(error) => {
            tracing::warn!(%error, "no metrics of GPUs: the thread that reads them could not be started");
            None
        }
    }
}

/// Activity of SMs and memory, for GPUs that report it.
struct Parts<'a> {
    watch: ActivityWatch<'a>,
    /// GPUs that do not report activity. Each was logged once.
    silent: BTreeSet<String>,
}

impl Parts<'_> {
    /// Activity since the last call. `None` on the first call, and if the GPU does not report it.
    fn activity(&mut self, gpu: &WatchedGpu) -> Option<Activity> {
        match self.watch.since_last(&gpu.uuid) {
            Ok(activity) => {
                self.silent.remove(&gpu.uuid);
                activity
            }
            Err(absent) => {
                if self.silent.insert(gpu.uuid.clone()) {
                    tracing::info!(gpu = gpu.device, %absent, "no metrics of its SMs");
                }
                None
            }
        }
    }
}

/// Logs once that readings fail, and once that they work again.
fn note(read: &Result<Vec<Readings>, MonitorError>, failing: &mut bool) {
    match (read, &failing) {
        (Err(error), false) => tracing::warn!(%error, "GPUs cannot be read"),
        (Ok(_), true) => tracing::info!("GPUs can be read again"),
        _ => {}
    }
    *failing = read.is_err();
}

/// Readings of a GPU or of a MIG instance. Only the memory is specific to the instance.
fn of(readings: &[Readings], uuid: &str) -> Option<Readings> {
    readings.iter().find_map(|gpu| {
        if gpu.uuid.as_deref() == Some(uuid) {
            return Some(gpu.clone());
        }
        let instance = gpu.instances.iter().find(|instance| instance.uuid == uuid)?;
        Some(Readings {
            busy_percent: None,
            memory_used_bytes: None,
            memory_total_bytes: instance.memory_bytes,
            ..gpu.clone()
        })
    })
}

/// Gauges of one GPU.
pub struct GpuMetrics {
    device: String,
    utilisation: Gauge,
    memory_used: Gauge,
    memory_total: Gauge,
    clock_sm: Gauge,
    clock_memory: Gauge,
    sm_active: Gauge,
    sm_occupancy: Gauge,
    memory_bandwidth: Gauge,
    throttled: BTreeMap<&'static str, Gauge>,
    triton: Option<TritonGauges>,
}

/// Triton's gauges of the same GPU.
struct TritonGauges {
    utilization: Gauge,
    memory_used: Gauge,
    memory_total: Gauge,
    power: Gauge,
}

impl TritonGauges {
    fn new(uuid: &str) -> Self {
        let gauge = |name: &'static str| metrics::gauge!(name, names::GPU_UUID => uuid.to_owned());
        Self {
            utilization: gauge(names::NV_GPU_UTILIZATION.name),
            memory_used: gauge(names::NV_GPU_MEMORY_USED.name),
            memory_total: gauge(names::NV_GPU_MEMORY_TOTAL.name),
            power: gauge(names::NV_GPU_POWER.name),
        }
    }
}

impl GpuMetrics {
    /// Registers the gauges of a GPU. With a UUID, also those of Triton.
    pub fn new(device: &str, triton_uuid: Option<&String>) -> Self {
        let gauge = |name: &'static str| metrics::gauge!(name, names::DEVICE => device.to_owned());
        Self {
            device: device.to_owned(),
            utilisation: gauge(names::GPU_UTILISATION.name),
            memory_used: gauge(names::GPU_MEMORY_USED.name),
            memory_total: gauge(names::GPU_MEMORY_TOTAL.name),
            clock_sm: gauge(names::GPU_CLOCK_SM.name),
            clock_memory: gauge(names::GPU_CLOCK_MEMORY.name),
            sm_active: gauge(names::GPU_SM_ACTIVE.name),
            sm_occupancy: gauge(names::GPU_SM_OCCUPANCY.name),
            memory_bandwidth: gauge(names::GPU_MEMORY_BANDWIDTH.name),
            throttled: BTreeMap::new(),
            triton: triton_uuid.map(|uuid| TritonGauges::new(uuid)),
        }
    }

    /// Sets the gauges to the readings. Missing values become `NaN`.
    pub fn set(&mut self, read: Option<&Readings>, activity: Option<Activity>) {
        let percent = read.and_then(|read| read.busy_percent);
        self.utilisation.set(percent.map_or(f64::NAN, |percent| f64::from(percent) / 100.0));
        let bytes = |bytes: Option<u64>| bytes.map_or(f64::NAN, |bytes| bytes as f64);
        self.memory_used.set(bytes(read.and_then(|read| read.memory_used_bytes)));
        self.memory_total.set(bytes(read.and_then(|read| read.memory_total_bytes)));
        let hertz = |mhz: Option<u32>| mhz.map_or(f64::NAN, |mhz| f64::from(mhz) * 1e6);
        self.clock_sm.set(hertz(read.and_then(|read| read.clock_sm_mhz)));
        self.clock_memory.set(hertz(read.and_then(|read| read.clock_memory_mhz)));
        let share = |of: fn(Activity) -> Option<f64>| activity.and_then(of).unwrap_or(f64::NAN);
        self.sm_active.set(share(|activity| activity.sm_active));
        self.sm_occupancy.set(share(|activity| activity.sm_occupancy));
        self.memory_bandwidth.set(share(|activity| activity.memory_bandwidth));
        self.set_reasons(read.and_then(|read| read.throttle_reasons.as_deref()));
        if let Some(triton) = &self.triton {
            triton.utilization.set(percent.map_or(f64::NAN, |percent| f64::from(percent) / 100.0));
            triton.memory_used.set(bytes(read.and_then(|read| read.memory_used_bytes)));
            triton.memory_total.set(bytes(read.and_then(|read| read.memory_total_bytes)));
            let milliwatts = read.and_then(|read| read.power_milliwatts);
            triton.power.set(milliwatts.map_or(f64::NAN, |milliwatts| f64::from(milliwatts) / 1000.0));
        }
    }

    /// Creates the gauge of a reason when the library first reports it. The library has few reasons.
    fn set_reasons(&mut self, given: Option<&[&'static str]>) {
        for reason in given.unwrap_or_default() {
            self.throttled.entry(reason).or_insert_with(|| {
                let (device, reason) = (self.device.clone(), reason.to_lowercase());
                metrics::gauge!(names::GPU_THROTTLED.name, names::DEVICE => device, names::REASON => reason)
            });
        }
        for (reason, gauge) in &self.throttled {
            gauge.set(given.map_or(f64::NAN, |given| if given.contains(reason) { 1.0 } else { 0.0 }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpulet_cuda::Instance;

    const ACTIVITY: Activity =
        Activity { sm_active: Some(0.25), sm_occupancy: Some(0.125), memory_bandwidth: None };

    fn readings() -> Readings {
        Readings {
            uuid: Some("GPU-1".to_owned()),
            name: Some("Test".to_owned()),
            busy_percent: Some(37),
            memory_busy_percent: None,
            memory_used_bytes: Some(512 << 20),
            memory_total_bytes: Some(80 << 30),
            clock_sm_mhz: Some(1755),
            clock_memory_mhz: None,
            throttle_reasons: Some(vec!["SW_POWER_CAP"]),
            power_milliwatts: None,
            temperature_celsius: None,
            mig: false,
            instances: Vec::new(),
        }
    }

    fn rendered(steps: &[Option<Readings>]) -> String {
        let recorder = crate::metrics::recorder().unwrap();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            let mut gpu = GpuMetrics::new("gpu0", Some(&"GPU-1".to_owned()));
            steps.iter().for_each(|step| gpu.set(step.as_ref(), step.as_ref().map(|_| ACTIVITY)));
        });
        handle.render()
    }

    #[test]
    fn what_is_read_is_shown_in_basic_units() {
        let text = rendered(&[Some(readings())]);
        for line in [
            "tessera_gpu_utilisation{device=\"gpu0\"} 0.37",
            "tessera_gpu_memory_used_bytes{device=\"gpu0\"} 536870912",
            "tessera_gpu_memory_total_bytes{device=\"gpu0\"} 85899345920",
            "tessera_gpu_sm_clock_hertz{device=\"gpu0\"} 1755000000",
            "tessera_gpu_memory_clock_hertz{device=\"gpu0\"} NaN",
            "tessera_gpu_throttled{device=\"gpu0\",reason=\"sw_power_cap\"} 1",
            "nv_gpu_utilization{gpu_uuid=\"GPU-1\"} 0.37",
            "nv_gpu_memory_used_bytes{gpu_uuid=\"GPU-1\"} 536870912",
            "nv_gpu_power_usage{gpu_uuid=\"GPU-1\"} NaN",
            "tessera_gpu_sm_active{device=\"gpu0\"} 0.25",
            "tessera_gpu_sm_occupancy{device=\"gpu0\"} 0.125",
            "tessera_gpu_memory_bandwidth_utilisation{device=\"gpu0\"} NaN",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn what_is_no_longer_true_is_no_longer_shown() {
        let calm = Readings { throttle_reasons: Some(Vec::new()), ..readings() };
        let reason = "tessera_gpu_throttled{device=\"gpu0\",reason=\"sw_power_cap\"}";
        let text = rendered(&[Some(readings()), Some(calm)]);
        assert!(text.contains(&format!("{reason} 0\n")), "{text}");
        let text = rendered(&[Some(readings()), None]);
        assert!(text.contains(&format!("{reason} NaN")), "{text}");
        assert!(text.contains("tessera_gpu_memory_used_bytes{device=\"gpu0\"} NaN"), "{text}");
        assert!(text.contains("tessera_gpu_sm_active{device=\"gpu0\"} NaN"), "{text}");
    }

    #[test]
    fn an_instance_has_its_own_memory_and_its_gpus_clocks() {
        let instance =
            Instance { uuid: "MIG-7".to_owned(), name: "Test MIG".to_owned(), memory_bytes: Some(10 << 30) };
        let partitioned = Readings { mig: true, instances: vec![instance], ..readings() };
        let read = of(&[partitioned], "MIG-7").unwrap();
        assert_eq!((read.memory_total_bytes, read.memory_used_bytes), (Some(10 << 30), None));
        assert_eq!((read.busy_percent, read.clock_sm_mhz), (None, Some(1755)));
        assert_eq!(of(&[readings()], "GPU-2"), None);
    }

    #[test]
    fn without_gpus_nothing_is_read() {
        assert!(watch(Vec::new(), true).is_none());
    }
}
