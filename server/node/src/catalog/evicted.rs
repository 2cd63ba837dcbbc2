//! Models that were unloaded because others needed their memory are loaded again when it is free.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::staging::Staging;
use super::{Catalog, LoadPriority};

impl Catalog {
    /// Loads evicted models again when memory was released and they fit. Runs as long as the server.
    pub async fn return_evicted(self: Arc<Self>) {
        let Some(memory) = self.memory.clone() else { return };
        loop {
            memory.released().await;
            let mut tried = BTreeSet::new();
            loop {
                // In this order, because a load that waits for the exchange keeps the layout as it is.
                let staging = Staging::new(&self).await;
                let _exchange = memory.exchange().await;
                let Some(model) = memory.that_fit().into_iter().find(|model| !tried.contains(model)) else {
                    break;
                };
                tried.insert(model.clone());
                load_again(staging, model).await;
            }
        }
    }
}

/// If it fails, others may have taken the memory: it stays evicted, and is tried again after the next release.
async fn load_again(mut staging: Staging, model: String) {
    if let Some(Ok(())) = staging.add_evicted(&model, LoadPriority::Background).await {
        staging.commit().await;
        tracing::info!(model, "loaded again: the memory that it was unloaded for is free");
    }
}
