//! Every path of the REST interface, with its handler and its description in the reference.

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use super::{
    config, explain, generate, health, lanes, metadata, partition, repository, settings, shapes,
    shared_memory, statistics,
};
use super::{method_not_allowed, unknown_path};
use crate::front::Front;

/// One path and method.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// `get` or `post`.
    pub method: &'static str,
    /// Path; a part in braces stands for any name.
    pub path: &'static str,
    /// What it does.
    pub about: &'static str,
}

macro_rules! routes {
    ($($method:ident $path:literal => $handler:path, $about:literal;)+) => {
        /// Every route, in the order of the reference.
        pub const ROUTES: &[Route] =
            &[$(Route { method: stringify!($method), path: $path, about: $about }),+];

        /// The routes with their handlers.
        pub(super) fn router(front: Arc<Front>) -> Router {
            Router::new()
                $(.route($path, $method($handler)))+
                .fallback(unknown_path)
                .method_not_allowed_fallback(method_not_allowed)
                .with_state(front)
        }
    };
}

// A path with `versions/{version}` answers for that version, the same path without it for the version that unversioned
// requests get. The handlers of `infer` are reached by other methods only: the right one is recognised before.
routes! {
    get "/v2" => metadata::server, "Name, version and extensions of the server.";
    get "/v2/health/live" => health::live, "200 while the process serves, draining included.";
    get "/v2/health/ready" => health::ready,
        "200 if the server takes requests. Otherwise 400, with each model that is not ready and the reason.";
    get "/v2/models/stats" => statistics::all, "Statistics of all models.";
    get "/v2/models/{model}" => metadata::model, "Inputs, outputs and versions of a model.";
    get "/v2/models/{model}/versions/{version}" => metadata::model, "The same for one version.";
    get "/v2/models/{model}/ready" => health::model, "200 if the model takes requests, otherwise 400.";
    get "/v2/models/{model}/versions/{version}/ready" => health::model, "The same for one version.";
    get "/v2/models/{model}/config" => config::model, "Configuration of a model in Triton's format, with defaults filled in.";
    get "/v2/models/{model}/versions/{version}/config" => config::model, "The same for one version.";
    get "/v2/models/{model}/stats" => statistics::model, "Statistics of a model.";
    get "/v2/models/{model}/versions/{version}/stats" => statistics::model, "The same for one version.";
    get "/v2/models/{model}/shapes" => shapes::model,
        "The commonest shapes of a model's requests since it was loaded, with their number, after padding. `tessera profile --from-traffic` reads it.";
    get "/v2/models/{model}/versions/{version}/shapes" => shapes::model, "The same for one version.";
    post "/v2/models/{model}/infer" => unknown_path, "Runs a model.";
    post "/v2/models/{model}/versions/{version}/infer" => unknown_path, "Runs one version of a model.";
    post "/v2/models/{model}/generate" => generate::one,
        "Runs a model on JSON fields instead of tensors, as Triton's generate extension.";
    post "/v2/models/{model}/versions/{version}/generate" => generate::one, "The same for one version.";
    post "/v2/models/{model}/generate_stream" => generate::stream, "The same; responses are sent events.";
    post "/v2/models/{model}/versions/{version}/generate_stream" => generate::stream, "The same for one version.";
    get "/v2/models/{model}/trace/setting" => settings::model_trace, "Trace settings of a model.";
    post "/v2/models/{model}/trace/setting" => settings::set_model_trace,
        "Changes trace settings of a model until the next start. `null` returns a setting to that of the server.";
    get "/v2/trace/setting" => settings::trace, "Trace settings of models that have none of their own.";
    post "/v2/trace/setting" => settings::set_trace,
        "Changes these until the next start. `null` returns a setting to that of the start.";
    get "/v2/logging" => settings::logging, "Log settings.";
    post "/v2/logging" => settings::set_logging, "Changes log settings until the next start.";
    post "/v2/repository/index" => repository::index,
        "Models of the repository with their state and, if they are not ready, the reason. `{\"ready\": true}`: only those that are.";
    post "/v2/repository/models/{model}/load" => repository::load,
        "Loads a model, or reloads what changed. Answers when it is ready. The parameters `config` and `file:VERSION/NAME` replace the \
         files of the repository.";
    post "/v2/repository/models/{model}/unload" => repository::unload,
        "Unloads a model after its requests in flight are answered.";
    get "/v2/explain" => explain::list,
        "The last requests, newest first. Query: `model`, `outcome` (`in_time`, `late`, `refused`, `failed`, `cancelled`), `reason`, `limit`.";
    get "/v2/explain/{id}" => explain::one,
        "Why a request ended as it did: when and how it came, what was expected of it, its batch, the time of each stage, what would have helped.";
    get "/v2/lanes" => lanes::view, "Lanes with their state and failures.";
    post "/v2/lanes/{lane}/enable" => lanes::enable, "Restarts a lane that stays down after repeated failures.";
    get "/v2/partition" => partition::view, "Gpulets, measured load and past decisions, if `partition.live` is set.";
    post "/v2/partition/plan" => partition::plan, "Applies a plan of the operator; the body is a plan as `GET /v2/partition` shows it.";
    post "/v2/partition/freeze" => partition::freeze, "Gpulets do not change until thawed.";
    post "/v2/partition/thaw" => partition::thaw, "Gpulets follow the load again.";
    get "/v2/systemsharedmemory/status" => shared_memory::status, "Registered regions of system shared memory.";
    post "/v2/systemsharedmemory/unregister" => shared_memory::unregister_all, "Unregisters all regions.";
    get "/v2/systemsharedmemory/region/{region}/status" => shared_memory::region_status, "One region.";
    post "/v2/systemsharedmemory/region/{region}/register" => shared_memory::register,
        "Registers a POSIX shared memory object: `{\"key\": ..., \"offset\": ..., \"byte_size\": ...}`.";
    post "/v2/systemsharedmemory/region/{region}/unregister" => shared_memory::unregister, "Unregisters a region.";
    get "/v2/cudasharedmemory/status" => shared_memory::cuda_status, "Always an empty list.";
    post "/v2/cudasharedmemory/unregister" => shared_memory::cuda_unregister, "Has nothing to unregister.";
    get "/v2/cudasharedmemory/region/{region}/status" => shared_memory::cuda_unsupported, "Refused: not offered.";
    post "/v2/cudasharedmemory/region/{region}/register" => shared_memory::cuda_unsupported, "Refused: not offered.";
    post "/v2/cudasharedmemory/region/{region}/unregister" => shared_memory::cuda_unregister, "Has nothing to unregister.";
}
