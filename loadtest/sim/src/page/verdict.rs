//! The result of a page in a sentence or two: it answers the question that the run asked.

use std::fmt::Write as _;

use charts::{number, percent};

use super::{Contender, KEPT, Page};

/// Difference of device-hours and their cost from which the cost of devices counts.
const COST_DIFFERS: f64 = 1e-6;
/// Device-hours below which device-seconds are shown.
const HOURS_MIN: f64 = 0.1;
/// Tenants that are named.
const TENANTS_MAX: usize = 4;

/// Which policy is best, by which measure, and how far the others are from it. `None` without policies.
pub(super) fn words(page: &Page<'_>) -> Option<String> {
    let best = page.contenders.first()?;
    if best.report.partition.is_some() {
        return Some(devices(page, best));
    }
    let capacity_known = page.contenders.iter().any(|contender| contender.capacity.is_some());
    let mut text = if capacity_known { capacity(page, best) } else { goodput(page, best) };
    text.push_str(&tenants(best));
    if let Some((bound, why)) = &page.bound {
        let _ = write!(text, " No policy can answer more than {} a second here: {why}.", number(*bound));
    }
    Some(text)
}

/// The share of each tenant's requests that were answered in time. Empty for a single tenant without a quota, or many.
fn tenants(best: &Contender<'_>) -> String {
    let tenants = best.report.tenants_to_show();
    if tenants.len() > TENANTS_MAX {
        return String::new();
    }
    let words = tenants.iter().map(|tenant| {
        let quota = match tenant.refused_by_quota as f64 / tenant.offered.max(1) as f64 {
            0.0 => String::new(),
            refused => format!(", {} refused by its quota", percent(refused)),
        };
        format!(" Tenant {}: {} in time{quota}.", tenant.name, percent(tenant.attainment))
    });
    words.collect()
}

/// The share of requests that policies must answer in time.
fn objective() -> String {
    format!("{} %", number(100.0 * KEPT))
}

/// Which policy keeps the objectives with the fewest device-hours.
fn devices(page: &Page<'_>, best: &Contender<'_>) -> String {
    let (attainment, hours_used, objective) = (percent(best.attainment.mean), hours(best), objective());
    let [only] = page.contenders.as_slice() else { return compared(page, best) };
    let devices = devices_used(only);
    let mean = only.report.partition.as_ref().map_or(0.0, |figures| figures.devices_mean);
    let enough = if only.keeps() {
        format!("{devices} suffice")
    } else {
        format!("{devices} do not suffice for {objective}")
    };
    format!(
        "{enough}: {attainment} of requests are answered within their latency objective, with {hours_used} ({} devices \
         on average).",
        number(mean)
    )
}

fn compared(page: &Page<'_>, best: &Contender<'_>) -> String {
    let objective = objective();
    let best_words =
        format!("{} with {} (at most {})", percent(best.attainment.mean), hours(best), devices_used(best));
    let mut text = if best.keeps() {
        format!(
            "Policy {} needs the fewest device-hours to answer {objective} of requests within their latency objective: it \
             answers {best_words}.",
            best.name
        )
    } else {
        format!(
            "No policy answers {objective} of requests within their latency objective. Policy {} comes closest: \
             {best_words}.",
            best.name
        )
    };
    let (kept, missed): (Vec<_>, Vec<_>) =
        page.contenders.iter().skip(1).partition(|contender| contender.keeps());
    if let Some(next) = kept.first() {
        let more = device_hours(next) / device_hours(best) - 1.0;
        let more = if more.is_finite() {
            format!(" ({} % more)", number((100.0 * more).round()))
        } else {
            String::new()
        };
        let _ = write!(
            text,
            " Next: {}, {} with {}{more}.",
            next.name,
            percent(next.attainment.mean),
            hours(next)
        );
    }
    if let Some(next) = missed.first() {
        let others = match missed.len() - 1 {
            0 => String::new(),
            1 => ", as does another policy".to_owned(),
            others => format!(", as do {others} other policies"),
        };
        let (name, hours, attainment) = (&next.name, hours(next), percent(next.attainment.mean));
        if best.keeps() {
            let _ =
                write!(text, " Policy {name} stays below {objective}{others}: {attainment} with {hours}.");
        } else {
            let _ = write!(text, " Next: {name}, {attainment} with {hours}.");
        }
    }
    text
}

/// How many devices a policy used at once.
fn devices_used(contender: &Contender<'_>) -> String {
    let figures = contender.report.partition.as_ref();
    let (most, all) = figures.map_or((0, 0), |figures| (figures.devices_most, figures.devices));
    format!("{most} of {all} devices")
}

/// Cost of the devices of a policy in hours of a device of cost 1.
fn device_hours(contender: &Contender<'_>) -> f64 {
    contender.report.partition.as_ref().map_or(0.0, |figures| figures.cost_seconds / 3_600.0)
}

fn hours(contender: &Contender<'_>) -> String {
    let Some(figures) = &contender.report.partition else { return "no devices".to_owned() };
    let plain = figures.device_seconds / 3_600.0;
    if (figures.cost_seconds - figures.device_seconds).abs() > COST_DIFFERS {
        let weighted = number(device_hours(contender));
        return format!("{weighted} device-hours weighted by cost ({} device-hours)", number(plain));
    }
    if plain < HOURS_MIN {
        return format!("{} device-seconds", number(figures.device_seconds));
    }
    format!("{} device-hours", number(plain))
}

/// Which policy has the highest capacity.
fn capacity(page: &Page<'_>, first: &Contender<'_>) -> String {
    let mut all: Vec<&Contender<'_>> = page.contenders.iter().collect();
    let of = |contender: &Contender<'_>| contender.capacity.unwrap_or(0.0);
    all.sort_by(|one, other| of(other).total_cmp(&of(one)));
    let best = all.first().copied().unwrap_or(first);
    let mut text = format!(
        "{} has a capacity of {} requests a second with {} of them within their latency objective.",
        best.name,
        number(of(best)),
        objective()
    );
    if let Some(next) = all.get(1) {
        let _ = write!(text, " Next: {} with {} a second", next.name, number(of(next)));
        if let Some(last) = all.last().filter(|_| all.len() > 2) {
            let _ = write!(text, "; last: {} with {}", last.name, number(of(last)));
        }
        text.push('.');
    }
    let _ = write!(
        text,
        " At the {} a second of this workload, {} answers {} in time.",
        number(first.offered),
        first.name,
        percent(first.attainment.mean)
    );
    text
}

/// Which policy answers most requests in time.
fn goodput(page: &Page<'_>, best: &Contender<'_>) -> String {
    let rates = |contender: &Contender<'_>| {
        format!("{} of {} a second", number(contender.goodput.mean), number(contender.offered))
    };
    let mut text = format!(
        "{} answers {} of requests within their latency objective: {}.",
        best.name,
        percent(best.attainment.mean),
        rates(best)
    );
    if let Some(next) = page.contenders.get(1) {
        let _ = write!(text, " Next: {} with {}", next.name, percent(next.attainment.mean));
        if let Some(last) = page.contenders.last().filter(|_| page.contenders.len() > 2) {
            let _ = write!(text, "; last: {} with {}", last.name, percent(last.attainment.mean));
        }
        text.push('.');
    }
    text
}
