//! One request under a roll-out: which version it gets, and what its end says about that version.

use std::sync::Arc;

use models::agree;
use models::engine::Response;
use router_core::Tenant;
use tokio_util::task::task_tracker::TaskTrackerToken;
use version_rollout::{Arm, Ending, Event};

use super::VersionRollout;
use crate::catalog::version::Loaded;
use crate::reason::{Reason, Refusal};

/// A request that a roll-out counts. Dropped before its end, it counts as not answered in time, because its client did not wait for the end.
pub struct Trial {
    rollout: Arc<VersionRollout>,
    arm: Arm,
    tenant: u16,
    is_open: bool,
}

/// A request of the stable version that runs on the canary too. Dropped before its end, it says nothing.
pub struct Mirror {
    rollout: Arc<VersionRollout>,
    tenant: u16,
    /// Holds the canary.
    _user: TaskTrackerToken,
    is_open: bool,
}

impl Trial {
    /// The version that the next request of a tenant gets.
    pub(in crate::catalog) fn next(rollout: &Arc<VersionRollout>, tenant: Tenant) -> (Arc<Loaded>, Self) {
        let tenant = tenant.number();
        let arm = rollout.core().route(tenant);
        let loaded = match arm {
            Arm::Stable => &rollout.stable,
            Arm::Canary => &rollout.canary,
        };
        (Arc::clone(loaded), Self { rollout: Arc::clone(rollout), arm, tenant, is_open: true })
    }

    /// If the request is to run on the canary too, and few enough others do.
    pub fn mirror(&self) -> Option<Mirror> {
        if self.arm != Arm::Stable {
            return None;
        }
        let user = self.rollout.canary.hold()?;
        let mirrors = self.rollout.core().mirrors(self.tenant);
        let rollout = Arc::clone(&self.rollout);
        mirrors.then(|| Mirror { rollout, tenant: self.tenant, _user: user, is_open: true })
    }

    /// It was answered.
    pub fn answered(mut self, in_time: bool) {
        self.end(if in_time { Ending::InTime } else { Ending::Late });
    }

    /// It says nothing about the version.
    pub fn disregard(mut self) {
        self.is_open = false;
    }

    /// It was not answered.
    pub fn refused(mut self, reason: Reason) {
        if reason == Reason::Quarantined && self.arm == Arm::Canary {
            self.rollout.handle(Event::Crashed);
        }
        match ending(reason) {
            Some(ending) => self.end(ending),
            None => self.is_open = false,
        }
    }

    fn end(&mut self, ending: Ending) {
        self.is_open = false;
        self.rollout.handle(Event::Ended { arm: self.arm, tenant: self.tenant, ending });
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        if self.is_open {
            self.end(Ending::Late);
        }
    }
}

impl Mirror {
    /// The version to run the request on.
    pub fn version(&self) -> &Arc<Loaded> {
        &self.rollout.canary
    }

    /// Compares its answer with that of the stable version. A canary that has no time for the request says nothing by that.
    pub fn compare(mut self, stable: &Response, canary: Result<Response, Refusal>) {
        let agrees = match canary {
            Ok(canary) => agree(&stable.outputs, &canary.outputs).is_ok(),
            Err(refusal) if ending(refusal.reason) == Some(Ending::Failed) => false,
            Err(_) => return,
        };
        self.is_open = false;
        self.rollout.handle(Event::Compared { tenant: self.tenant, agrees });
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        if self.is_open {
            self.rollout.handle(Event::NotCompared);
        }
    }
}

/// What a refusal says about the version. `None`: nothing. Inputs that a version refuses count as failures: if the client made the
/// mistake, the other version refuses as many.
fn ending(reason: Reason) -> Option<Ending> {
    match reason {
        Reason::Malformed
        | Reason::LaneFailed
        | Reason::Quarantined
        | Reason::EngineFailed
        | Reason::ModelUnknown
        | Reason::ModelNotFound
        | Reason::ModelUnavailable
        | Reason::ModelUnsupported
        | Reason::ModelAlreadyExists
        | Reason::ModelCancelled => Some(Ending::Failed),
        Reason::QueueFull | Reason::DeadlineUnmeetable | Reason::Shed | Reason::Expired => Some(Ending::Late),
        _ => None,
    }
}
