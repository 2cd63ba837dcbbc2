//! One line in the log for each change that a caller asks for.

use identity::Caller;

/// Logs a request for a change that was let in. `None`: callers do not have to say who they are. `path` is that of an HTTP
/// request, with its query, or of a gRPC method.
pub fn change_requested(caller: Option<&Caller>, path: &str) {
    let Some(caller) = caller else {
        tracing::info!(path, "change requested");
        return;
    };
    let (role, tenant, caller) = (caller.role.word(), &*caller.tenant, &*caller.name);
    tracing::info!(caller, tenant, role, path, "change requested");
}
