//! Every path of the REST interface, with its handler and its description in the reference.

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use http::Method;
use node::reason::{Reason, Refusal};

use super::response::Refused;
use super::{
    config, dashboard, explain, generate, health, jobs, lanes, metadata, partition, repository, rollout,
    settings, shapes, shared_memory, statistics, what_if,
};
use super::{method_not_allowed, unknown_path};
use crate::audit;
use crate::front::Front;
use crate::gate::{Access, CertificateCaller, Surface};

/// One path and method.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// `get` or `post`.
    pub method: &'static str,
    /// Path; a part in braces stands for any name.
    pub path: &'static str,
    /// What it needs of the caller.
    pub access: Access,
    /// What it does.
    pub about: &'static str,
}

/// What a route needs. A method that the route does not take changes nothing, and needs as much as a change.
fn access(path: &str, method: &Method) -> Access {
    let takes = |route: &&Route| match route.method {
        "get" => *method == Method::GET || *method == Method::HEAD,
        _ => *method == Method::POST,
    };
    let mut same_path = ROUTES.iter().filter(|route| route.path == path);
    same_path.find(takes).map_or(Access::Change, |route| route.access)
}

/// Lets in the requests that may do what the matched route does. The router matches first, so that no other reading of the
/// path decides here.
async fn guard(
    State((front, surface)): State<(Arc<Front>, Surface)>,
    matched: MatchedPath,
    mut request: Request,
    next: Next,
) -> Result<Response, Refused> {
    let access = access(matched.as_str(), request.method());
    if front.gate.is_reached_by_browsers(surface, access) {
        let checked = front.admin_host.check(request.uri(), request.headers());
        checked.map_err(|denied| Refusal::new(Reason::HostRefused, denied.to_string()))?;
    }
    let certificate = request.extensions().get::<CertificateCaller>();
    let caller = front.gate.admit(surface, access, request.headers(), certificate)?;
    if access.changes() {
        let path = request.uri().path_and_query().map_or("", |path| path.as_str());
        audit::change_requested(caller.as_ref(), path);
    }
    if let Some(caller) = caller {
        request.extensions_mut().insert(caller);
    }
    Ok(next.run(request).await)
}

macro_rules! routes {
    ($($method:ident $access:ident $path:literal => $handler:path, $about:literal;)+) => {
        /// Every route, in the order of the reference.
        pub const ROUTES: &[Route] =
            &[$(Route { method: stringify!($method), path: $path, access: Access::$access, about: $about }),+];

        /// The routes with their handlers, for callers that come in by a surface.
        pub(super) fn router(front: Arc<Front>, surface: Surface) -> Router {
            Router::new()
                $(.route($path, $method($handler)))+
                .route_layer(from_fn_with_state((Arc::clone(&front), surface), guard))
                .fallback(unknown_path)
                .method_not_allowed_fallback(method_not_allowed)
                .with_state(front)
        }
    };
}

// A path with `versions/{version}` answers for that version, the same path without it for the version that unversioned
// requests get. The handlers of `infer` are reached by other methods only: the right one is recognised before.
routes! {
    get Metadata "/v2" => metadata::server, "Name, version and extensions of the server.";
    get Health "/v2/health/live" => health::live, "200 while the process serves, draining included.";
    get Health "/v2/health/ready" => health::ready,
        "200 if the server takes requests. Otherwise 400, with each model that is not ready and the reason.";
    get Metadata "/v2/models/stats" => statistics::all, "Statistics of all models.";
    get Metadata "/v2/models/{model}" => metadata::model, "Inputs, outputs and versions of a model.";
    get Metadata "/v2/models/{model}/versions/{version}" => metadata::model, "The same for one version.";
    get Health "/v2/models/{model}/ready" => health::model, "200 if the model takes requests, otherwise 400.";
    get Health "/v2/models/{model}/versions/{version}/ready" => health::model, "The same for one version.";
    get Metadata "/v2/models/{model}/config" => metadata::model_configuration, "Configuration of a model in Triton's format, with defaults filled in.";
    get Metadata "/v2/models/{model}/versions/{version}/config" => metadata::model_configuration, "The same for one version.";
    get Metadata "/v2/models/{model}/stats" => statistics::model, "Statistics of a model.";
    get Metadata "/v2/models/{model}/versions/{version}/stats" => statistics::model, "The same for one version.";
    get Metadata "/v2/models/{model}/shapes" => shapes::model,
        "The commonest shapes of a model's requests since it was loaded, with their number, after padding. `tessera profile --from-traffic` reads it.";
    get Metadata "/v2/models/{model}/versions/{version}/shapes" => shapes::model, "The same for one version.";
    post Inference "/v2/models/{model}/infer" => unknown_path, "Runs a model.";
    post Inference "/v2/models/{model}/versions/{version}/infer" => unknown_path, "Runs one version of a model.";
    post Inference "/v2/models/{model}/generate" => generate::one,
        "Runs a model on JSON fields instead of tensors, as Triton's generate extension.";
    post Inference "/v2/models/{model}/versions/{version}/generate" => generate::one, "The same for one version.";
    post Inference "/v2/models/{model}/generate_stream" => generate::stream, "The same; responses are sent events.";
    post Inference "/v2/models/{model}/versions/{version}/generate_stream" => generate::stream, "The same for one version.";
    post Jobs "/v2/jobs" => jobs::submit,
        "Runs the rows of the body through a model as best effort. Query: `model`, and optionally `version`, `outputs` (their names, separated by \
         commas), `input` and `results` (formats: `jsonl`, one JSON object a line, `npy`, `npz` or `parquet`; results are as the input is) and \
         `by`, in milliseconds since 1970. Answers when the job is durable.";
    get JobsView "/v2/jobs" => jobs::list, "Jobs of the caller's tenant, or of all for the roles `read` and `operate`: how far they are, and when they will end.";
    get JobsView "/v2/jobs/{job}" => jobs::show, "One job.";
    post Jobs "/v2/jobs/{job}/cancel" => jobs::cancel, "Ends a job. Its results until then are kept.";
    get JobsView "/v2/jobs/{job}/output" => jobs::output,
        "Results of a job in the order of its rows, as far as they are durable. Query: `offset` in bytes, for JSON lines.";
    get Metadata "/v2/models/{model}/trace/setting" => settings::model_trace, "Trace settings of a model.";
    post Change "/v2/models/{model}/trace/setting" => settings::set_model_trace,
        "Changes trace settings of a model until the next start. `null` returns a setting to that of the server.";
    get Metadata "/v2/trace/setting" => settings::trace, "Trace settings of models that have none of their own.";
    post Change "/v2/trace/setting" => settings::set_trace,
        "Changes these until the next start. `null` returns a setting to that of the start.";
    get Metadata "/v2/logging" => settings::logging, "Log settings.";
    post Change "/v2/logging" => settings::set_logging, "Changes log settings until the next start.";
    post Metadata "/v2/repository/index" => repository::index,
        "Models of the repository with their state and, if they are not ready, the reason. `{\"ready\": true}`: only those that are.";
    post ModelControl "/v2/repository/models/{model}/load" => repository::load,
        "Loads a model, or reloads what changed. Answers when it is ready. The parameters `config` and `file:VERSION/NAME` replace the \
         files of the repository.";
    post ModelControl "/v2/repository/models/{model}/unload" => repository::unload,
        "Unloads a model after its requests in flight are answered.";
    get Page "/" => dashboard::page, "The dashboard, a page for people. Its files are under `/dashboard/`.";
    get Page "/dashboard/{file}" => dashboard::file, "A file of the dashboard.";
    get View "/v2/activity" => dashboard::activity,
        "What models, lanes and tenants did lately: rates, attainment, latencies, burn rates, queues, busy lanes.";
    get View "/v2/activity/events" => dashboard::events, "The same each second, as sent events.";
    get View "/v2/activity/timeline" => dashboard::timeline,
        "Requests that ended in time, late and without an answer, and those that waited, by second, over the last hour.";
    post View "/v2/what-if" => what_if::ask,
        "The traffic of the last hour through the simulator, as it was and with something changed: `{\"load\": 1.5, \"lanes\": 3, \"policy\": \"triton\", \
         \"objectives\": {\"resnet50\": \"40ms\"}}`, each optional. Changes nothing; one at a time.";
    get View "/v2/explain" => explain::list,
        "The last requests, newest first. Query: `model`, `outcome` (`in_time`, `late`, `refused`, `failed`, `cancelled`), `reason`, `limit`.";
    get View "/v2/explain/{id}" => explain::one,
        "Why a request ended as it did: when and how it came, what was expected of it, its batch, the time of each stage, what would have helped.";
    get View "/v2/config" => config::view,
        "Every setting in force with its value, where it came from and when a change takes effect; settings that wait for a restart; the last reload.";
    post Operation "/v2/config" => config::reload,
        "Reloads the configuration file, as SIGHUP does. `?dry_run=true`: only answers what would change, for the text of a file in the body \
         if there is one; models are not loaded for it.";
    get View "/v2/models/{model}/rollout" => rollout::view,
        "The roll-out of a new version that is under way, or the last one: both versions with their digests, how their requests ended, the verdict.";
    post Operation "/v2/models/{model}/rollout/promote" => rollout::promote, "Gives the new version all requests now.";
    post Operation "/v2/models/{model}/rollout/rollback" => rollout::roll_back, "Takes the new version out of service now.";
    get View "/v2/lanes" => lanes::view, "Lanes with their state and failures.";
    post Operation "/v2/lanes/{lane}/enable" => lanes::enable, "Restarts a lane that stays down after repeated failures.";
    get View "/v2/partition" => partition::view, "Gpulets, measured load and past decisions, if `partition.live` is set.";
    post Operation "/v2/partition/plan" => partition::plan, "Applies a plan of the operator; the body is a plan as `GET /v2/partition` shows it.";
    post Operation "/v2/partition/freeze" => partition::freeze, "Gpulets do not change until thawed.";
    post Operation "/v2/partition/thaw" => partition::thaw, "Gpulets follow the load again.";
    get Metadata "/v2/systemsharedmemory/status" => shared_memory::status, "Registered regions of system shared memory.";
    post Inference "/v2/systemsharedmemory/unregister" => shared_memory::unregister_all, "Unregisters all regions.";
    get Metadata "/v2/systemsharedmemory/region/{region}/status" => shared_memory::region_status, "One region.";
    post Inference "/v2/systemsharedmemory/region/{region}/register" => shared_memory::register,
        "Registers a POSIX shared memory object: `{\"key\": ..., \"offset\": ..., \"byte_size\": ...}`.";
    post Inference "/v2/systemsharedmemory/region/{region}/unregister" => shared_memory::unregister, "Unregisters a region.";
    get Metadata "/v2/cudasharedmemory/status" => shared_memory::cuda_status, "Always an empty list.";
    post Inference "/v2/cudasharedmemory/unregister" => shared_memory::cuda_unregister, "Has nothing to unregister.";
    get Metadata "/v2/cudasharedmemory/region/{region}/status" => shared_memory::cuda_unsupported, "Refused: not offered.";
    post Inference "/v2/cudasharedmemory/region/{region}/register" => shared_memory::cuda_unsupported, "Refused: not offered.";
    post Inference "/v2/cudasharedmemory/region/{region}/unregister" => shared_memory::cuda_unregister, "Has nothing to unregister.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_changed_by_get() {
        for route in ROUTES {
            assert!(!route.access.changes() || route.method == "post", "{}", route.path);
            assert_eq!(access(route.path, &route.method.to_uppercase().parse().unwrap()), route.access);
        }
        assert_eq!(access("/v2/partition", &Method::HEAD), Access::View);
        assert_eq!(access("/v2/partition", &Method::POST), Access::Change);
    }
}
