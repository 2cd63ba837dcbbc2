//! What people see of the last look.

use std::collections::HashMap;
use std::sync::Arc;

use router_core::batch::StartReason;
use router_core::{ModelId, ModelSnapshot, Tenant};
use serde::Serialize;
use version_rollout::Arm;

use super::{Second, Seen, State};
use crate::catalog::Loaded;
use crate::node::Node;
use crate::supervisor::LaneRow;

/// Part of the requests that may miss the objective in the long run, for burn rates, as the rules for Prometheus have it.
const BAD_ALLOWED: f64 = 0.01;
/// Seconds over which rates are told.
const LATELY: usize = 10;

/// The server as of the last look.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ActivityView {
    /// The second before.
    pub second: Option<Second>,
    /// Why the server is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_ready: Option<String>,
    /// The models that serve, worst first.
    pub models: Vec<ModelActivity>,
    /// The families, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<FamilyActivity>,
    /// The lanes.
    pub lanes: Vec<LaneActivity>,
    /// The tenants, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<TenantActivity>,
}

/// One model version. Counts of the last ten seconds, rates a second.
#[derive(Clone, Debug, Serialize)]
pub struct ModelActivity {
    /// Name of the model.
    pub name: String,
    /// Its version.
    pub version: u64,
    /// Its part in a roll-out, if one is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Arm>,
    /// Batching policy.
    pub policy: &'static str,
    /// Requests that ended.
    pub rate: f64,
    /// Those of them that were not answered.
    pub unanswered: f64,
    /// Part of the last minute's requests that were answered in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attainment: Option<f64>,
    /// How many times faster than allowed requests missed the objective, over five minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burn_5m: Option<f64>,
    /// The same over an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burn_1h: Option<f64>,
    /// Median latency in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<f64>,
    /// Latency in milliseconds that 99 % keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
    /// Objective in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective_ms: Option<f64>,
    /// Requests that wait.
    pub queued: u64,
    /// Requests in batches.
    pub in_flight: u32,
    /// Lanes that hold a session of it.
    pub lanes: usize,
    /// Part of those that was busy lately.
    pub load: f64,
    /// Number of batches since it was loaded, by rows.
    pub batches: Vec<(u32, u64)>,
    /// The same by the reason for their start.
    pub starts: Vec<(StartReason, u64)>,
}

impl ModelActivity {
    /// How bad it is: models that miss their objectives first, then busy ones.
    fn order(&self) -> (f64, f64) {
        (self.attainment.unwrap_or(1.0), -self.rate)
    }
}

/// One family. Rates are of the last ten seconds.
#[derive(Clone, Debug, Serialize)]
pub struct FamilyActivity {
    /// Its name.
    pub name: String,
    /// Quality of the best variant that requests get at the moment, from 0 to 1.
    pub level: f64,
    /// How often the level fell.
    pub falls: u64,
    /// How often it rose.
    pub rises: u64,
    /// Mean quality of the answers. `None` without answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quality: Option<f64>,
    /// Least quality of requests that ask for none.
    pub quality_min: f64,
    /// Its variants, in the order of the configuration.
    pub variants: Vec<VariantActivity>,
}

/// One variant of a family.
#[derive(Clone, Debug, Serialize)]
pub struct VariantActivity {
    /// Name of the model.
    pub name: String,
    /// Its measured quality, from 0 to 1.
    pub quality: f64,
    /// Answers a second, those to requests that name the model included.
    pub rate: f64,
    /// Lanes that hold a session of it.
    pub lanes: usize,
}

/// One lane.
#[derive(Clone, Debug, Serialize)]
pub struct LaneActivity {
    /// As `GET /v2/lanes` shows it.
    #[serde(flatten)]
    pub row: LaneRow,
    /// Parts of its time that it ran each model.
    pub busy: Vec<(String, f64)>,
}

/// One tenant.
#[derive(Clone, Debug, Serialize)]
pub struct TenantActivity {
    /// Its name.
    pub name: String,
    /// Its weight.
    pub weight: u32,
    /// Lane time that it used, in seconds a second.
    pub used: f64,
    /// Lane time that it may use, in seconds a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<f64>,
}

pub(super) fn of(state: &State, seen: &Seen, node: &Node) -> ActivityView {
    let Seen { snapshot, models, lanes, .. } = seen;
    let known: HashMap<ModelId, &ModelSnapshot> =
        snapshot.models.iter().map(|model| (model.model, model)).collect();
    let row = |loaded: &Arc<Loaded>| {
        let rollout = node.catalog().rollout_part(loaded);
        Some(ModelActivity { rollout, ..model(state, loaded, known.get(&loaded.id)?)? })
    };
    let mut rows: Vec<ModelActivity> = models.iter().filter_map(row).collect();
    rows.sort_by(|a, b| {
        let (one, other) = (a.order(), b.order());
        one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1)).then_with(|| a.name.cmp(&b.name))
    });
    let lane = |row: &LaneRow| LaneActivity { busy: state.lanes.of(row.lane), row: row.clone() };
    let lanes = lanes.iter().map(lane).collect();
    let tenants = node.catalog().tenants();
    let table = tenants.table();
    let tenant = |(name, number): (String, Tenant)| {
        let at = usize::from(number.number());
        Some(TenantActivity {
            name,
            weight: *table.weights().get(at)?,
            used: state.tenants.get(at)?.per_second,
            quota: snapshot.tenants.get(at)?.quota.lane_time.map(|limit| limit.lane_seconds_per_second()),
        })
    };
    ActivityView {
        second: state.timeline.back().copied(),
        not_ready: node.not_ready(),
        models: rows,
        families: models.iter().filter_map(|loaded| family(state, loaded, seen)).collect(),
        lanes,
        tenants: tenants.numbers().into_iter().filter_map(tenant).collect(),
    }
}

fn family(state: &State, loaded: &Arc<Loaded>, seen: &Seen) -> Option<FamilyActivity> {
    let served = loaded.ensemble.as_ref()?;
    let family = served.family.as_ref()?;
    let level = seen.snapshot.families.iter().find(|known| known.family == family.id)?;
    let variant = |name: &str, quality: f64| {
        let own = || seen.models.iter().filter(|model| model.name == name);
        let answers = own().filter_map(|model| state.tracks.get(&(model.name.clone(), model.version)));
        let rates = answers.map(|track| {
            let lately = track.recent.last_seconds(LATELY);
            let seconds = track.recent.known_seconds(LATELY).max(1) as f64;
            (f64::from(lately.in_time) + f64::from(lately.late)) / seconds
        });
        let lanes = own().map(|model| model.lanes().len()).sum();
        VariantActivity {
            name: name.to_owned(),
            quality,
            rate: rates.fold(0.0, |sum, rate| sum + rate),
            lanes,
        }
    };
    let variants = served.ensemble.steps.iter().zip(&family.variants);
    let variants: Vec<VariantActivity> =
        variants.map(|(step, (_, quality))| variant(&step.model, quality.value)).collect();
    let all: f64 = variants.iter().map(|variant| variant.rate).sum();
    let sum: f64 = variants.iter().map(|variant| variant.rate * variant.quality).sum();
    Some(FamilyActivity {
        name: loaded.name.clone(),
        level: f64::from(level.quality) / 1e6,
        falls: level.falls,
        rises: level.rises,
        quality: (all > 0.0).then(|| sum / all),
        quality_min: family.quality_min,
        variants,
    })
}

fn model(state: &State, loaded: &Arc<Loaded>, known: &ModelSnapshot) -> Option<ModelActivity> {
    let track = state.tracks.get(&(loaded.name.clone(), loaded.version))?;
    let lately = track.recent.last_seconds(LATELY);
    let seconds = track.recent.known_seconds(LATELY).max(1) as f64;
    let burn = |minutes| {
        let attainment = track.recent.last_minutes(minutes).attainment()?;
        Some((1.0 - attainment) / BAD_ALLOWED)
    };
    Some(ModelActivity {
        name: loaded.name.clone(),
        version: loaded.version,
        rollout: None,
        policy: known.policy,
        rate: lately.all() as f64 / seconds,
        unanswered: f64::from(lately.unanswered) / seconds,
        attainment: track.recent.last_seconds(60).attainment(),
        burn_5m: burn(5),
        burn_1h: burn(60),
        p50_ms: track.quantile_ms(0.5),
        p99_ms: track.quantile_ms(0.99),
        objective_ms: loaded.config().slo.map(|slo| slo.as_secs_f64() * 1e3),
        queued: known.queued,
        in_flight: known.in_flight,
        lanes: loaded.lanes().len(),
        load: known.load,
        batches: loaded.statistics.batch_times().into_iter().map(|(rows, count, _)| (rows, count)).collect(),
        starts: known.starts.clone(),
    })
}
