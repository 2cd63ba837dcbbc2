//! Keeps credentials and certificates current while the server runs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use identity::Identity;
use node::metrics::{certificate_expires, identity_loaded, identity_reload_failed, register_identity_file};
use node::tenants::Tenants;
use tokio_util::sync::CancellationToken;

use crate::service::Service;

/// How often the files are compared. A change takes effect after at most three of these.
const INTERVAL: Duration = Duration::from_secs(1);

/// Shows in the metrics what was loaded at the start, and warns of tenants that the settings do not have.
pub fn announce(identity: &Identity, tenants: &Tenants, client_tenant: &str) {
    warn_of_unknown_tenants(identity, tenants, client_tenant);
    for file in identity.files() {
        register_identity_file(file.label());
        identity_loaded(file.label(), SystemTime::now());
    }
    show_expiries(identity);
}

/// Warns of tenants of credentials that the configuration does not have.
pub fn warn_of_unknown_tenants(identity: &Identity, tenants: &Tenants, client_tenant: &str) {
    let of_clients = identity.authenticator.is_some().then(|| client_tenant.into());
    warn_of_unknown(tenants, of_clients.into_iter().chain(tenants_of(identity)));
}

/// Loads files that change, until `stop`.
pub async fn run(identity: Arc<Identity>, service: Arc<Service>, stop: CancellationToken) {
    if identity.files().is_empty() {
        return;
    }
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let (identity, service) = (Arc::clone(&identity), Arc::clone(&service));
        // A disk that does not answer holds up one thread, and no request.
        if tokio::task::spawn_blocking(move || refresh(&identity, &service)).await.is_err() {
            tracing::error!("the task that reads credentials and certificates ended");
        }
    }
}

fn refresh(identity: &Identity, service: &Service) {
    let mut keys_changed = false;
    for reload in identity.refresh() {
        let (file, path) = (reload.file.label(), reload.path.display());
        match reload.result {
            Ok(()) => {
                tracing::info!(setting = reload.file.setting(), %path, "file reloaded");
                identity_loaded(file, SystemTime::now());
                keys_changed = true;
            }
            Err(problem) => {
                tracing::warn!(setting = reload.file.setting(), %path, problem, "file not reloaded: the old one stays in force");
                identity_reload_failed(file);
            }
        }
    }
    if keys_changed {
        warn_of_unknown(service.node.catalog().tenants(), tenants_of(identity).into_iter());
    }
    show_expiries(identity);
}

fn tenants_of(identity: &Identity) -> Vec<Arc<str>> {
    identity.authenticator.as_ref().map(|authenticator| authenticator.tenants()).unwrap_or_default()
}

fn warn_of_unknown(tenants: &Tenants, names: impl Iterator<Item = Arc<str>>) {
    let unknown: BTreeSet<Arc<str>> = names.filter(|name| tenants.named(Some(name)).is_other).collect();
    if !unknown.is_empty() {
        tracing::warn!(
            tenants = ?unknown,
            "tenants of credentials without a table `[tenants.NAME]`: their requests count as those of `default`"
        );
    }
}

fn show_expiries(identity: &Identity) {
    for (file, expires) in identity.expiries() {
        certificate_expires(file.label(), expires);
    }
}
