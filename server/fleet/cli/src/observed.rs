//! What servers and pickers last said, for the leader.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fleet_core::view::ModelView;
use fleet_picker::follow::{Listener, Signals, update};
use fleet_picker::nodes::{Endpoint, PlannedRate};

/// A model of a node: its view, and the rows a second of its requests.
pub type Heard = (ModelView, f64);

/// Everything that was said last.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Whether servers are followed at all.
    pub follows_nodes: bool,
    /// Models by node, of the nodes whose streams are open.
    pub nodes: BTreeMap<String, BTreeMap<String, Heard>>,
    /// Rows a second by model, by picker.
    pub demand: BTreeMap<String, BTreeMap<String, f64>>,
}

/// Keeps what was said; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    snapshot: Arc<Mutex<Snapshot>>,
}

impl Observed {
    fn lock(&self) -> MutexGuard<'_, Snapshot> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything as it is now.
    pub fn snapshot(&self) -> Snapshot {
        self.lock().clone()
    }

    /// Servers are followed from now on.
    pub fn follow_nodes(&self) {
        self.lock().follows_nodes = true;
    }

    /// A picker told its demand.
    pub fn demanded(&self, picker: &str, rates: BTreeMap<String, f64>) {
        self.lock().demand.insert(picker.to_owned(), rates);
    }

    /// Only these pickers exist.
    pub fn keep_pickers(&self, pickers: &BTreeSet<String>) {
        self.lock().demand.retain(|picker, _| pickers.contains(picker));
    }
}

impl Listener for Observed {
    fn added(&self, _: &Arc<Endpoint>) {}

    fn removed(&self, node: &str) {
        self.lock().nodes.remove(node);
    }

    fn heard(&self, node: &Arc<Endpoint>, signals: Signals) {
        let rates: Vec<f64> = signals.models.iter().map(|model| model.rate).collect();
        let update = update(signals);
        let mut snapshot = self.lock();
        let models = snapshot.nodes.entry(node.name.clone()).or_default();
        if update.complete {
            models.clear();
        }
        for ((model, view), rate) in update.models.into_iter().zip(rates) {
            models.insert(model, (view, rate));
        }
        for model in update.removed {
            models.remove(&model);
        }
    }

    fn lost(&self, node: &Arc<Endpoint>) {
        self.removed(&node.name);
    }

    fn planned(&self, _: PlannedRate) {}
}
