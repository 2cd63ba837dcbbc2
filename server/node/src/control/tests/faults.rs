//! Every step of a rollout may fail: the plan in force continues to serve, and nothing of the new one remains.

use gpulet_core::time::Micros;
use std::sync::Mutex;

use gpulet::{CoresDevice, Device, DeviceError, DeviceInfo, Partition, PartitionSpec, PartitionWatch};
use models::engine::{Batch, RunError, Session};
use models::{LoadOptions, Loader, ModelFiles, Signature};
use oip::Tensor;

use super::*;
use crate::devices::{Devices, Share};

/// Fault of gpulets that are opened while it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Gpulets cannot be opened.
    Open,
    /// Gpulets fail to load models.
    Load,
    /// Sessions fail during warm-up.
    WarmUp,
    /// Sessions return wrong outputs.
    Wrong,
    /// Loading a model panics.
    Panic,
}

const FAULTS: [(Fault, &str); 5] = [
    (Fault::Open, "planted: no gpulet"),
    (Fault::Load, "planted: no session"),
    (Fault::WarmUp, "planted: no run"),
    (Fault::Wrong, "differs"),
    (Fault::Panic, "the engine panicked"),
];

/// Cores with an injected fault.
struct Faulty {
    inner: CoresDevice,
    fault: Arc<Mutex<Option<Fault>>>,
}

impl Device for Faulty {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn open(
        &self,
        spec: &PartitionSpec,
        watch: Arc<dyn PartitionWatch>,
    ) -> Result<Arc<dyn Partition>, DeviceError> {
        if *self.fault.lock().unwrap() == Some(Fault::Open) {
            return Err(DeviceError("planted: no gpulet".to_owned()));
        }
        let inner = self.inner.open(spec, watch)?;
        Ok(Arc::new(FaultyPartition { inner, fault: Arc::clone(&self.fault) }))
    }
}

struct FaultyPartition {
    inner: Arc<dyn Partition>,
    fault: Arc<Mutex<Option<Fault>>>,
}

impl Partition for FaultyPartition {
    fn cores(&self) -> &[usize] {
        self.inner.cores()
    }

    fn load(&self, files: &ModelFiles, options: &LoadOptions) -> Result<Box<dyn Session>, DeviceError> {
        let fault = *self.fault.lock().unwrap();
        assert_ne!(fault, Some(Fault::Panic), "planted");
        if fault == Some(Fault::Load) {
            return Err(DeviceError("planted: no session".to_owned()));
        }
        let inner = self.inner.load(files, options)?;
        Ok(Box::new(FaultySession { inner, fault }))
    }
}

struct FaultySession {
    inner: Box<dyn Session>,
    fault: Option<Fault>,
}

impl Session for FaultySession {
    fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
        let mut outputs = self.inner.run(batch)?;
        match self.fault {
            Some(Fault::WarmUp) => Err(RunError::Engine("planted: no run".to_owned())),
            Some(Fault::Wrong) => {
                for output in &mut outputs {
                    output.data = output.data.iter().map(|byte| byte ^ 0x3F).collect::<Vec<u8>>().into();
                }
                Ok(outputs)
            }
            _ => Ok(outputs),
        }
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn engine(&self) -> &'static str {
        self.inner.engine()
    }
}

/// One gpulet of all cores. A plan of one gpulet per core has no part of it.
fn merged(units: u32) -> Plan {
    let slot = |name: &str| Slot { workload: name.to_owned(), batch: 8, budget_us: 10_000.0, rate: 10.0 };
    let slots: Vec<Slot> = MODELS.iter().map(|(name, ..)| slot(name)).collect();
    Plan::new(vec![Gpulet {
        device: "cpu0".into(),
        first_unit: 0,
        units,
        window: None,
        duty_us: Some(30_000.0),
        slots,
    }])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_fails_leaves_the_plan_in_force_to_serve() {
    let folder = tempfile::tempdir().unwrap();
    repository(folder.path());
    let cores: Vec<usize> = gpulet::allowed_cores().unwrap().into_iter().take(2).collect();
    let units = u32::try_from(cores.len()).unwrap();
    if units < 2 {
        // One core has but one plan.
        return;
    }
    let node = serving(folder.path(), &cores).await;
    let catalog = Arc::clone(node.catalog());
    let fault = Arc::new(Mutex::new(None));
    let inner = CoresDevice::new("cpu0", cores.clone(), u64::MAX, Arc::new(Loader::without_ort()));
    let faulty: Arc<dyn Device> = Arc::new(Faulty { inner, fault: Arc::clone(&fault) });
    let start = (0..units).map(|unit| Share {
        device: "cpu0".into(),
        first_unit: unit,
        units: 1,
        idle_priority: false,
    });
    let devices = Arc::new(Devices::from_parts(vec![faulty], start.collect()));
    let terms = Terms::new(Arc::clone(&devices), Policy::default(), VariantPolicy::default());
    let layout = Layout::new(Arc::clone(&catalog), devices, failures().0, catalog.lanes());
    let options = RolloutOptions { bake_us: Micros(2_000), ..RolloutOptions::default() };
    let mut shell = Shell::new(Rollout::new(options).unwrap(), Arc::new(layout));
    let models = catalog.all_serving();
    let found = terms.initial_plan(&models, &Targets::default()).unwrap();
    let initial_plan = || Proposal::new(&found.plan, &found.problem).unwrap();
    assert_eq!(change(&mut shell, initial_plan()).await, Outcome::Done);

    let seen = Arc::new(Seen::default());
    let clients: Vec<_> = MODELS
        .iter()
        .map(|(model, ..)| tokio::spawn(client(Arc::clone(&node), model, 0, Arc::clone(&seen))))
        .collect();
    let merged = merged(units);
    for (planted, reason) in FAULTS {
        *fault.lock().unwrap() = Some(planted);
        let outcome = change(&mut shell, Proposal::new(&merged, &found.problem).unwrap()).await;
        let Outcome::Failed { reason: told } = &outcome else { panic!("{planted:?}: {outcome:?}") };
        assert!(told.contains(reason), "{planted:?}: {told}");
        assert_eq!(shell.rollout().plan(), found.plan, "{planted:?}");
        let snapshot = catalog.router().snapshot().await.unwrap();
        assert_eq!(snapshot.lanes.len(), cores.len(), "{planted:?}: no lane is left behind");
        for loaded in catalog.all_serving() {
            assert_eq!(loaded.lanes().len(), cores.len(), "{planted:?}: no session is left behind");
        }
        *fault.lock().unwrap() = None;
        let outcome = change(&mut shell, Proposal::new(&merged, &found.problem).unwrap()).await;
        assert_eq!(outcome, Outcome::Done, "{planted:?} is over");
        assert_eq!(change(&mut shell, initial_plan()).await, Outcome::Done, "and back");
    }
    seen.stop.store(true, Ordering::SeqCst);
    for client in clients {
        client.await.unwrap();
    }
    let [wrong, late, refused] =
        [&seen.wrong, &seen.late, &seen.refused].map(|count| count.load(Ordering::SeqCst));
    assert_eq!((wrong, late, refused), (0, 0, 0));
    node.stop().await;
}
