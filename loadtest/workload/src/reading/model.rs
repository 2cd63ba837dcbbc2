//! A model's section, but for its arrivals.

use crate::document::{ClassSection, ModelSection, RowsSection};
use crate::files::Texts;
use crate::overhead::Spans;
use crate::process::Process;
use crate::profile::{BATCH_MAX, Profile};
use crate::rollout::RolloutPlan;
use crate::shares::Shares;
use crate::spans::show;
use crate::workload::{Model, Tenant};
use units::Fault as WorkloadError;

/// Bytes that a row may have: what a request body may.
const ROW_BYTES_MAX: u64 = 64 << 20;

/// Row counts that one model may mix.
const ROWS_MAX: usize = 256;

/// Least urgent class.
const PRIORITY_MAX: u8 = 7;

/// Reads a model. Its copies differ in their names and processes.
pub(super) fn read(
    group: &str,
    section: &ModelSection,
    process: Process,
    (tenants, lanes): (&[Tenant], u32),
    files: &mut Texts<'_>,
) -> Result<Model, WorkloadError> {
    let at = |key: &str| format!("{}.{group}.{key}", section.table());
    let wrong = |key: &str, problem: String| Err(WorkloadError::new(at(key), problem));
    let profile =
        section.profile.as_ref().map(|profile| Profile::read(profile, &at("profile"), files)).transpose()?;
    let slo = section
        .slo
        .ok_or_else(|| WorkloadError::new(at("slo"), "expected a value: this key has no default"))?;
    let rows = read_rows(&section.rows, profile.as_ref(), &at("rows"))?;
    let largest = rows.iter().map(|(rows, _)| rows).max().unwrap_or(1);
    let alone = profile.as_ref().map_or(0, |profile| profile.time(largest));
    if slo.0 < alone && !section.has_no_traffic() {
        let (slo, alone) = (show(slo.0), show(alone));
        return wrong(
            "slo",
            format!("{slo} cannot be met: a request of {largest} row(s) alone takes {alone}"),
        );
    }
    if slo.0 == 0 {
        return wrong("slo", "expected more than 0".to_owned());
    }
    if section.priority > PRIORITY_MAX {
        return wrong("priority", format!("expected 0 to {PRIORITY_MAX}, got {}", section.priority));
    }
    let best_effort = section.class == ClassSection::BestEffort;
    if best_effort && section.priority > 0 {
        return wrong("priority", "expected none: `class` is `best_effort`".to_owned());
    }
    if section.row_bytes == 0 || section.row_bytes > ROW_BYTES_MAX {
        return wrong("row_bytes", format!("expected 1 to {ROW_BYTES_MAX}, got {}", section.row_bytes));
    }
    let names: Vec<&str> = tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    let rollout = section.rollout.as_ref();
    let rollout = rollout.map(|rollout| RolloutPlan::read(rollout, &names, &at("rollout"))).transpose()?;
    let tenants = read_tenants(section, tenants, &at("tenants"))?;
    Ok(Model {
        name: group.to_owned(),
        group: group.to_owned(),
        model: section.model.clone().unwrap_or_else(|| group.to_owned()),
        load: section.load.map(|span| span.0),
        lanes: section.lanes.as_deref().map(|given| read_lanes(given, lanes, &at("lanes"))).transpose()?,
        slo: slo.0,
        profile,
        rows,
        row_bytes: section.row_bytes,
        priority: section.priority,
        best_effort,
        tenants,
        deadline: section.deadline && !best_effort,
        overhead: Spans::read(section.overhead.as_ref(), &at("overhead"))?,
        pipeline: None,
        family: None,
        rollout,
        process,
    })
}

/// `count`: the lanes that there are.
fn read_lanes(given: &[u32], count: u32, field: &str) -> Result<Vec<u32>, WorkloadError> {
    let mut lanes = given.to_vec();
    lanes.sort_unstable();
    lanes.dedup();
    let last = count.saturating_sub(1);
    let wrong = |problem: String| Err(WorkloadError::new(field, problem));
    match lanes.last() {
        None => wrong("expected at least one lane, or no key for all lanes".to_owned()),
        Some(lane) if *lane > last => wrong(format!("expected lanes from 0 to {last}, got {lane}")),
        Some(_) if lanes.len() < given.len() => wrong("expected each lane once".to_owned()),
        Some(_) => Ok(lanes),
    }
}

fn read_rows(
    section: &RowsSection,
    profile: Option<&Profile>,
    field: &str,
) -> Result<Shares<u32>, WorkloadError> {
    let (shares, given) = match section {
        RowsSection::Fixed(rows) => (Some(Shares::only(*rows)), vec![*rows]),
        RowsSection::Weighted(weights) => {
            if weights.len() > ROWS_MAX {
                let problem = format!("expected at most {ROWS_MAX} pairs, got {}", weights.len());
                return Err(WorkloadError::new(field, problem));
            }
            (Shares::weighted(weights), weights.iter().map(|(rows, _)| *rows).collect())
        }
    };
    let (max, why) =
        profile.map_or((BATCH_MAX, ""), |profile| (profile.max_batch(), ", as the profile goes"));
    if let Some(rows) = given.iter().find(|rows| **rows == 0 || **rows > max) {
        let problem = format!("expected 1 to {max} rows{why}, got {rows}");
        return Err(WorkloadError::new(field, problem));
    }
    shares.ok_or_else(|| {
        WorkloadError::new(field, "expected pairs like [[1, 0.9], [4, 0.1]] with weights above 0")
    })
}

fn read_tenants(
    section: &ModelSection,
    tenants: &[Tenant],
    field: &str,
) -> Result<Shares<u16>, WorkloadError> {
    if section.tenants.is_empty() {
        return Ok(Shares::only(0));
    }
    let mut weights = Vec::new();
    for (name, weight) in &section.tenants {
        let number = tenants.iter().position(|tenant| tenant.name == *name);
        let Some(number) = number.and_then(|number| u16::try_from(number).ok()) else {
            let known: Vec<&str> = tenants.iter().map(|tenant| tenant.name.as_str()).collect();
            let hint = units::nearest(name, &known).map(|near| format!(", did you mean `{near}`?"));
            let problem = format!("no such tenant in [tenants]{}", hint.unwrap_or_default());
            return Err(WorkloadError::new(format!("{field}.{name}"), problem));
        };
        if !(*weight > 0.0 && weight.is_finite()) {
            let problem = format!("expected a share above 0, got {weight}");
            return Err(WorkloadError::new(format!("{field}.{name}"), problem));
        }
        weights.push((number, *weight));
    }
    Shares::weighted(&weights).ok_or_else(|| WorkloadError::new(field, "expected shares whose sum is finite"))
}
