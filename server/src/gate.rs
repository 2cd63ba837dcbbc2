//! What each path needs of its caller. HTTP and gRPC ask here before they read a body.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use http::HeaderMap;
use identity::{Authenticator, Caller, Denied, Role};
use node::config::ModelControl;
use node::reason::{Reason, Refusal};

/// Which listeners a request came in by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// `server.http` and `server.grpc`.
    Inference,
    /// `server.admin`.
    Admin,
}

/// What a path is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Probes, which have no credentials.
    Health,
    /// Files of the dashboard, which hold no data.
    Page,
    /// Facts about the server and its models.
    Metadata,
    /// Running a model, and registering memory for it.
    Inference,
    /// Submitting and cancelling jobs.
    Jobs,
    /// Looking at jobs and their results.
    JobsView,
    /// How busy the models are, for pickers and other nodes.
    Signals,
    /// Loading and unloading models.
    ModelControl,
    /// Changing settings.
    Change,
    /// Looking at lanes and gpulets.
    View,
    /// Changing lanes and gpulets.
    Operation,
}

impl Access {
    /// Whether it changes the server.
    pub fn changes(self) -> bool {
        match self {
            Self::Health | Self::Page | Self::Metadata | Self::Inference | Self::Signals | Self::View => {
                false
            }
            // They change what their caller owns.
            Self::Jobs | Self::JobsView => false,
            Self::ModelControl | Self::Change | Self::Operation => true,
        }
    }

    /// Whether a surface has such paths.
    pub fn is_served_by(self, surface: Surface) -> bool {
        match self {
            Self::Health | Self::Metadata | Self::ModelControl | Self::Change => true,
            Self::Jobs | Self::JobsView => true,
            Self::Inference | Self::Signals => surface == Surface::Inference,
            Self::Page | Self::View | Self::Operation => surface == Surface::Admin,
        }
    }
}

/// What is needed of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The path is open to every caller.
    Nothing,
    /// To be known.
    AnyRole,
    /// A role.
    Role(Role),
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("none"),
            Self::AnyRole => f.write_str("any"),
            Self::Role(role) => write!(f, "{role}"),
        }
    }
}

/// The caller that the certificate of the connection stands for; an extension of each request of the connection.
#[derive(Clone, Debug)]
pub struct CertificateCaller(pub Arc<Caller>);

/// Decides who is let in.
#[derive(Default)]
pub struct Gate {
    /// `None`: callers do not have to say who they are.
    authenticator: Option<Arc<Authenticator>>,
    model_control: ModelControl,
    /// Whether `server.http` serves the paths of `server.admin` too.
    one_surface: bool,
}

impl Gate {
    /// A gate that lets every request in. `loopback`: only this machine reaches the inference listeners.
    pub fn open(loopback: bool) -> Self {
        Self { one_surface: loopback, ..Self::default() }
    }

    /// A gate that lets in the callers that the authenticator knows.
    pub fn new(authenticator: Arc<Authenticator>, model_control: ModelControl) -> Self {
        Self { authenticator: Some(authenticator), model_control, ..Self::default() }
    }

    /// Whether requests that came in by a surface manage the server there because callers do not have to say who they are. Only
    /// programs of this machine reach it, and pages in its browsers.
    pub fn is_reached_by_browsers(&self, surface: Surface, access: Access) -> bool {
        let manages = access.changes() || access == Access::View;
        self.one_surface && surface == Surface::Inference && manages
    }

    /// Lets a request in, or says what is missing. `None`: callers are not known.
    ///
    /// # Errors
    /// The path is served elsewhere, the caller is not known, or its role is not enough.
    pub fn admit(
        &self,
        surface: Surface,
        access: Access,
        headers: &HeaderMap,
        certificate: Option<&CertificateCaller>,
    ) -> Result<Option<Caller>, Refusal> {
        let served_too = self.one_surface && surface == Surface::Inference && access != Access::Page;
        if !access.is_served_by(surface) && !served_too {
            return Err(Refusal::new(
                Reason::UnknownPath,
                match surface {
                    Surface::Inference => "this path is served by the address `server.admin` only",
                    Surface::Admin => {
                        "this path is served by the addresses `server.http` and `server.grpc` only"
                    }
                },
            ));
        }
        self.check(need(surface, access, self.model_control), headers, certificate)
    }

    /// Checks a caller against a need.
    ///
    /// # Errors
    /// The caller is not known, or its role is not enough.
    pub fn check(
        &self,
        need: Need,
        headers: &HeaderMap,
        certificate: Option<&CertificateCaller>,
    ) -> Result<Option<Caller>, Refusal> {
        let Some(authenticator) = &self.authenticator else { return Ok(None) };
        if need == Need::Nothing {
            return Ok(None);
        }
        let certificate = certificate.map(|caller| &*caller.0);
        let caller = authenticator.identify(headers, certificate, SystemTime::now()).map_err(refusal)?;
        match need {
            Need::Role(role) if !caller.role.includes(role) => Err(refusal(Denied::Needs(role))),
            Need::Nothing | Need::AnyRole | Need::Role(_) => Ok(Some(caller)),
        }
    }

    /// Checks an admitted caller again, for calls whose message decides what they do.
    ///
    /// # Errors
    /// The role is not enough.
    pub fn require(&self, caller: Option<&Caller>, role: Role) -> Result<(), Refusal> {
        match (&self.authenticator, caller) {
            (None, _) => Ok(()),
            (Some(_), Some(caller)) if caller.role.includes(role) => Ok(()),
            (Some(_), Some(_)) => Err(refusal(Denied::Needs(role))),
            (Some(_), None) => Err(refusal(Denied::Missing)),
        }
    }
}

/// What a path needs of its caller.
pub fn need(surface: Surface, access: Access, model_control: ModelControl) -> Need {
    match (access, surface) {
        (Access::Health | Access::Page, _) => Need::Nothing,
        (Access::Metadata, Surface::Inference) => Need::AnyRole,
        (Access::Metadata, Surface::Admin) | (Access::Signals | Access::View, _) => Need::Role(Role::Read),
        (Access::Inference, _) | (Access::Jobs, Surface::Inference) => Need::Role(Role::Infer),
        (Access::JobsView, Surface::Inference) => Need::AnyRole,
        (Access::JobsView, Surface::Admin) => Need::Role(Role::Read),
        (Access::Jobs, Surface::Admin) => Need::Role(Role::Operate),
        (Access::ModelControl, Surface::Inference) if model_control == ModelControl::Open => Need::AnyRole,
        (Access::ModelControl | Access::Change | Access::Operation, _) => Need::Role(Role::Operate),
    }
}

fn refusal(denied: Denied) -> Refusal {
    let reason = if denied.is_unauthenticated() { Reason::Unauthenticated } else { Reason::PermissionDenied };
    Refusal::new(reason, denied.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_identity_every_request_is_let_in_and_management_stays_where_others_cannot_reach_it() {
        let admit = |loopback, surface, access| {
            Gate::open(loopback)
                .admit(surface, access, &HeaderMap::new(), None)
                .map(|caller| caller.is_none())
        };
        for access in
            [Access::Health, Access::Metadata, Access::Inference, Access::ModelControl, Access::Change]
        {
            assert!(admit(false, Surface::Inference, access).unwrap(), "{access:?}");
        }
        for access in [Access::View, Access::Operation] {
            assert!(admit(true, Surface::Inference, access).unwrap());
            let refusal = admit(false, Surface::Inference, access).unwrap_err();
            assert_eq!(refusal.reason, Reason::UnknownPath);
            assert!(admit(false, Surface::Admin, access).unwrap());
        }
        assert!(admit(false, Surface::Admin, Access::Page).unwrap());
        assert_eq!(admit(true, Surface::Inference, Access::Page).unwrap_err().reason, Reason::UnknownPath);
        assert_eq!(admit(true, Surface::Admin, Access::Inference).unwrap_err().reason, Reason::UnknownPath);
    }

    #[test]
    fn each_kind_of_path_needs_its_role() {
        let gate = |model_control| Gate::new(Arc::new(Authenticator::default()), model_control);
        let closed = gate(ModelControl::Operate);
        for (access, role, let_in) in [
            (Access::Inference, Role::Infer, true),
            (Access::Inference, Role::Read, false),
            (Access::Inference, Role::Operate, true),
            (Access::Metadata, Role::Read, true),
            (Access::Signals, Role::Read, true),
            (Access::Signals, Role::Infer, false),
            (Access::Metadata, Role::Infer, true),
            (Access::ModelControl, Role::Infer, false),
            (Access::ModelControl, Role::Operate, true),
            (Access::Change, Role::Read, false),
        ] {
            let peer = CertificateCaller(Arc::new(Caller { role, tenant: "t".into(), name: "n".into() }));
            let admitted = closed.admit(Surface::Inference, access, &HeaderMap::new(), Some(&peer));
            assert_eq!(admitted.is_ok(), let_in, "{access:?} {role}");
            if let Err(refusal) = admitted {
                assert_eq!(refusal.reason, Reason::PermissionDenied);
                assert!(refusal.message.starts_with("this path needs role "), "{}", refusal.message);
            }
        }
        let peer =
            CertificateCaller(Arc::new(Caller { role: Role::Infer, tenant: "t".into(), name: "n".into() }));
        let open = gate(ModelControl::Open);
        assert!(open.admit(Surface::Inference, Access::ModelControl, &HeaderMap::new(), Some(&peer)).is_ok());
        assert!(open.admit(Surface::Admin, Access::ModelControl, &HeaderMap::new(), Some(&peer)).is_err());
        assert!(closed.admit(Surface::Admin, Access::Metadata, &HeaderMap::new(), Some(&peer)).is_err());
        let missing =
            closed.admit(Surface::Inference, Access::Inference, &HeaderMap::new(), None).unwrap_err();
        assert_eq!(missing.reason, Reason::Unauthenticated);
        assert!(closed.admit(Surface::Inference, Access::Health, &HeaderMap::new(), None).is_ok());
        let elsewhere = closed.admit(Surface::Inference, Access::View, &HeaderMap::new(), Some(&peer));
        assert_eq!(elsewhere.unwrap_err().reason, Reason::UnknownPath);
    }
}
