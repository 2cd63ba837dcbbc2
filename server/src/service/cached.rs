//! The response cache in the path of one request.

use std::time::{Duration, Instant};

use models::engine::Response;
use node::catalog::{CacheKey, Catalog, Loaded, cache_key};
use oip::{Parameters, RequestedOutput, Tensor};

use crate::service::RequestContext;

/// What the cache knows of a request.
pub(super) enum Lookup {
    /// The model's answers are not cached.
    Off,
    /// The response to an earlier request.
    Hit(Response),
    /// Nothing, after this time.
    Miss(CacheKey, Duration),
}

/// Looks for the answer to a valid request, and records a hit.
pub(super) async fn look_up(
    catalog: &Catalog,
    loaded: &Loaded,
    inputs: &[Option<Tensor>],
    outputs: Option<&[RequestedOutput]>,
    parameters: &Parameters,
    context: &RequestContext,
) -> Lookup {
    if !loaded.caches {
        return Lookup::Off;
    }
    let started = Instant::now();
    let outputs = outputs.unwrap_or_default().iter().map(|output| output.name.clone()).collect();
    let Some(key) = cache_key(loaded.load, inputs, outputs, parameters).await else { return Lookup::Off };
    let found = catalog.response_cache().get(&key);
    let took = started.elapsed();
    let Some(response) = found else { return Lookup::Miss(key, took) };
    let total = context.arrived.elapsed();
    loaded.metrics.record_cache_hit(took, total);
    catalog.tenants().answered(context.tenant, None);
    loaded.statistics.answered_from_cache(took, total);
    Lookup::Hit(response)
}

/// Remembers the response to a request that the cache did not know.
pub(super) fn remember(
    catalog: &Catalog,
    loaded: &Loaded,
    (key, lookup): (CacheKey, Duration),
    response: &Response,
) {
    let started = Instant::now();
    catalog.response_cache().insert(key, response);
    let spent = lookup.saturating_add(started.elapsed());
    loaded.metrics.record_cache_miss(spent);
    loaded.statistics.missed_cache(spent);
}
