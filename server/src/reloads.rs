//! Reloads of the configuration: by SIGHUP, by an operator, and when the file changes.

use std::sync::Arc;
use std::time::Duration;

use identity::Identity;
use node::config::{ConfigFile, ConfigSource};
use node::reason::{Reason, Refusal};
use node::reload::ReloadReport;
use tokio::signal::unix::Signal;
use tokio::sync::Mutex;
use tokio::time::MissedTickBehavior;

use crate::identity_watch;
use crate::service::Service;
use crate::systemd::ServiceManager;

/// How often the file is compared with what was read last. A new text is taken up when two comparisons in a row find it, so that
/// a file that is being written is not.
const INTERVAL: Duration = Duration::from_secs(1);

/// Reloads the configuration, one reload after the other.
pub struct Reloads {
    service: Arc<Service>,
    /// Told of each reload.
    pub manager: ServiceManager,
    identity: Arc<Identity>,
    /// Tenant of callers with a client certificate.
    client_tenant: String,
    running: Mutex<()>,
}

impl Reloads {
    /// No reload has happened.
    pub fn new(service: Arc<Service>, identity: Arc<Identity>, client_tenant: String) -> Self {
        let (manager, running) = (ServiceManager::default(), Mutex::default());
        Self { service, manager, identity, client_tenant, running }
    }

    /// Reloads the configuration. Goes on if the caller leaves, because half a reload would be neither the old configuration nor
    /// the new one.
    ///
    /// # Errors
    /// What is wrong with the configuration, or with a model that serves. It is logged too.
    pub async fn reload(self: &Arc<Self>) -> Result<ReloadReport, Refusal> {
        let this = Arc::clone(self);
        let ended = tokio::spawn(async move { this.run().await }).await;
        ended.unwrap_or_else(|error| {
            Err(Refusal::new(Reason::Internal, format!("the reload ended early: {error}")))
        })
    }

    async fn run(&self) -> Result<ReloadReport, Refusal> {
        let _alone = self.running.lock().await;
        let node = &self.service.node;
        self.manager.reload_begins();
        let reloaded = node.reload().await;
        identity_watch::warn_of_unknown_tenants(
            &self.identity,
            node.catalog().tenants(),
            &self.client_tenant,
        );
        self.manager.reload_ends(node);
        reloaded
    }

    /// Reloads at each SIGHUP.
    pub async fn at_hangup(self: Arc<Self>, mut hangup: Signal) {
        while hangup.recv().await.is_some() {
            // The reason is logged.
            let _ = self.reload().await;
        }
    }

    /// Reloads when the text of the configuration file is another than that of the start, or of the last reload.
    pub async fn watch(self: Arc<Self>, source: ConfigSource, start: Option<Arc<ConfigFile>>) {
        let mut changes = FileChanges::new(start.as_deref().cloned());
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let source = source.clone();
            // A disk that does not answer holds up one thread, and no request.
            let Ok(read) = tokio::task::spawn_blocking(move || source.file()).await else { continue };
            // A file that cannot be read is a change too: the reload says what is wrong with it.
            if changes.found(read.unwrap_or_default()) {
                tracing::info!("the configuration file changed");
                // The reason is logged.
                let _ = self.reload().await;
            }
        }
    }
}

/// Tells when a file has a new text that stays.
#[derive(Debug)]
struct FileChanges {
    taken_up: Option<ConfigFile>,
    found_before: Option<ConfigFile>,
}

impl FileChanges {
    fn new(start: Option<ConfigFile>) -> Self {
        Self { found_before: start.clone(), taken_up: start }
    }

    /// Whether this text is to be taken up.
    fn found(&mut self, file: Option<ConfigFile>) -> bool {
        let stays = file == self.found_before;
        self.found_before.clone_from(&file);
        if stays && file != self.taken_up {
            self.taken_up = file;
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_text_is_taken_up_once_it_stays() {
        let file = |text: &str| Some(("tessera.toml".into(), text.to_owned()));
        let mut changes = FileChanges::new(file("a"));
        let mut found = |text: Option<ConfigFile>| changes.found(text);
        assert!(!found(file("a")));
        assert!(!found(file("b")), "it may be half written");
        assert!(found(file("b")));
        assert!(!found(file("b")), "taken up before");
        assert!(!found(file("c")) && !found(file("d")) && found(file("d")));
        assert!(!found(file("x")) && !found(file("d")) && !found(file("d")), "back to what is in force");
        assert!(!found(None) && found(None) && !found(None), "removed");
        assert!(!found(file("d")) && found(file("d")));
    }
}
