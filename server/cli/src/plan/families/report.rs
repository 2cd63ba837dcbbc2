//! Prints plans of families.

use std::fmt::Write as _;

use charts::{number, percent};
use node::output;
use serde::Serialize;
use variant_plan::{Demand, Fluid, Question, variant_costs};

use super::super::format;
use super::explain::Explained;
use super::study::{FamilyPlan, FamilyStudy, Served, Used};

/// Plans of families as JSON.
#[derive(Serialize)]
pub struct FamiliesLine<'a> {
    /// Lower bound for the cost of any plan.
    cost_least: Option<f64>,
    /// Whether that is with whole devices.
    whole_devices: bool,
    /// Policies, the best first.
    policies: Vec<StandingLine<'a>>,
    explained: Option<&'a Explained>,
}

#[derive(Serialize)]
struct StandingLine<'a> {
    policy: &'a str,
    about: &'a str,
    sound: bool,
    cost: Option<f64>,
    quality: Option<f64>,
    served: &'a [Served],
    devices: &'a [Used],
    /// Limits that the plan breaks.
    violations: Vec<String>,
}

impl<'a> FamiliesLine<'a> {
    pub fn of(question: &Question, study: &'a FamilyStudy) -> Self {
        let policies = study.standings.iter().map(|standing| {
            let plan = standing.planned.as_ref();
            StandingLine {
                policy: standing.policy,
                about: standing.about,
                sound: plan.is_some_and(|plan| plan.is_sound(question)),
                cost: plan.map(|plan| plan.planned.validation.cost),
                quality: plan.map(FamilyPlan::quality),
                served: plan.map_or(&[], |plan| &plan.served),
                devices: plan.map_or(&[], |plan| &plan.devices),
                violations: plan.map_or_else(Vec::new, |plan| {
                    plan.planned.validation.violations.iter().map(ToString::to_string).collect()
                }),
            }
        });
        Self {
            cost_least: study.bound.as_ref().map(|bound| bound.cost),
            whole_devices: study.bound.as_ref().is_some_and(|bound| bound.whole),
            policies: policies.collect(),
            explained: study.explained.as_ref(),
        }
    }
}

fn quality(share: f64) -> String {
    format!("{share:.4}")
}

fn kind(name: &str, spot: bool) -> String {
    if spot { format!("{name} (spot)") } else { name.to_owned() }
}

/// The comparison of all policies, what serves each family in the best plan, and its explanation.
pub fn text(question: &Question, study: &FamilyStudy) -> String {
    let mut text = String::new();
    if study.standings.len() > 1 {
        text.push_str(&compared(question, study));
    }
    let Some((standing, plan)) = study.best() else {
        let _ = writeln!(text, "\nno plan: {}", why_not(question));
        return text;
    };
    let _ = writeln!(text, "\n{}: {}\n", standing.policy, standing.about);
    text.push_str(&served(plan));
    let used = plan.devices.iter().filter(|used| used.used > 0);
    let used = used.map(|used| {
        format!("{} of {} {} at {}", used.used, used.of, kind(&used.kind, used.spot), number(used.cost))
    });
    let cost = plan.planned.validation.cost;
    let _ = write!(text, "\ncost: {} per hour: {}", number(cost), used.collect::<Vec<_>>().join(", "));
    text.push_str(&if plan.is_sound(question) {
        bound(study, cost)
    } else {
        "; the plan breaks limits\n".to_owned()
    });
    if plan.lost() > 0.0 {
        let (lost, most) = (percent(plan.lost()), percent(question.spot().lost_max));
        let _ = writeln!(
            text,
            "lost with spot devices: {lost} of the requests in the long run, of at most {most}"
        );
    }
    if let Some(explained) = &study.explained {
        text.push_str(&explanation(explained, cost));
    }
    text
}

/// What prevents a plan, and what would make one possible.
fn why_not(question: &Question) -> String {
    let costs = variant_costs(question);
    let is_late =
        |demand: &&Demand| demand.wanted > 0.0 && costs.iter().all(|cost| cost.demand != demand.name);
    if let Some(demand) = question.demands().iter().find(is_late) {
        return format!(
            "no variant of `{}` answers within its objective: expected a longer `slo`",
            demand.name
        );
    }
    let remedy = "expected more devices, lower rates, or a lower quality";
    match Fluid::carried(question) {
        Some(part) if part < 1.0 => {
            format!("even in their best batches, the devices carry {} of the load: {remedy}", percent(part))
        }
        _ => format!("the shares of these devices do not fit: {remedy}"),
    }
}

fn bound(study: &FamilyStudy, cost: f64) -> String {
    let Some(bound) = &study.bound else { return "\n".to_owned() };
    let whole = if bound.whole { "whole devices" } else { "parts of devices" };
    if cost <= bound.cost * (1.0 + 1e-5) {
        return format!("; no plan costs less (integer program with {whole})\n");
    }
    let gap = format::growth(cost / bound.cost);
    format!(
        "; at most {gap} more than the optimum: the work alone, on {whole}, costs {}\n",
        number(bound.cost)
    )
}

fn compared(question: &Question, study: &FamilyStudy) -> String {
    let header = ["policy", "sound", "cost", "quality", "devices", "lost", "violations"];
    let rows = study.standings.iter().map(|standing| {
        let mut row = vec![standing.policy.to_owned()];
        match &standing.planned {
            None => row.extend(["no plan", "-", "-", "-", "-", "-"].map(str::to_owned)),
            Some(plan) => {
                let used = plan.devices.iter().filter(|used| used.used > 0);
                let used: Vec<String> =
                    used.map(|used| format!("{} {}", used.used, kind(&used.kind, used.spot))).collect();
                row.extend([
                    if plan.is_sound(question) { "yes" } else { "no" }.to_owned(),
                    number(plan.planned.validation.cost),
                    quality(plan.quality()),
                    used.join(", "),
                    percent(plan.lost()),
                    plan.planned.validation.violations.len().to_string(),
                ]);
            }
        }
        row
    });
    format!("\n{}", output::table(&header, rows))
}

fn served(plan: &FamilyPlan) -> String {
    let header = ["family", "variant", "quality", "share", "requests/s", "on"];
    let mut rows = Vec::new();
    for served in plan.served.iter().filter(|served| served.quality.is_some()) {
        for (at, variant) in served.variants.iter().enumerate() {
            let on = variant.on.iter().map(|(kind, rate)| format!("{kind} {}", number(*rate)));
            rows.push(vec![
                if at == 0 { served.name.clone() } else { String::new() },
                variant.model.clone(),
                quality(variant.quality),
                format::percent(variant.share),
                number(variant.rate),
                on.collect::<Vec<_>>().join(", "),
            ]);
        }
        if let Some(mean) = served.quality.filter(|_| served.variants.len() > 1) {
            rows.push(vec![
                String::new(),
                "mean".to_owned(),
                quality(mean),
                String::new(),
                String::new(),
                String::new(),
            ]);
        }
    }
    output::table(&header, rows)
}

fn explanation(explained: &Explained, cost: f64) -> String {
    let Explained { variants, qualities, on_the_same, alone, losses } = explained;
    let header = ["family", "variant", "quality", "on", "cost per hour", "requests/s", "cost of a million"];
    let mut last = "";
    let rows: Vec<Vec<String>> = variants
        .iter()
        .map(|variant| {
            let is_same = std::mem::replace(&mut last, &variant.demand) == variant.demand;
            vec![
                if is_same { String::new() } else { variant.demand.clone() },
                variant.model.clone(),
                quality(variant.quality),
                kind(&variant.device_type, variant.spot),
                number(variant.device_cost),
                number(variant.rate),
                number(variant.per_million),
            ]
        })
        .collect();
    let mut text = format!("\n{}", output::table(&header, rows));
    text.push_str("requests/s: of a whole device, in the best batches and shares in time\n");
    let than = |other: Option<f64>| match other {
        None => "the devices do not suffice".to_owned(),
        Some(other) if (other - cost).abs() <= 1e-9 * cost => "costs the same".to_owned(),
        Some(other) => format!(
            "costs {}, {} {}",
            number(other),
            number((other - cost).abs()),
            if other > cost { "more" } else { "less" }
        ),
    };
    text.push('\n');
    for same in on_the_same {
        let _ = writeln!(
            text,
            "{}: with what the devices have left over, its mean quality would be {}, without headroom",
            same.family,
            quality(same.quality_mean)
        );
    }
    for other in qualities {
        let _ = writeln!(
            text,
            "{}: a mean quality of {} {}",
            other.family,
            quality(other.quality_mean),
            than(other.cost)
        );
    }
    if !alone.is_empty() {
        text.push('\n');
    }
    for alone in alone {
        let _ = writeln!(text, "only {}: {}", alone.device_type, than(alone.cost));
    }
    if !losses.is_empty() {
        text.push('\n');
    }
    for lost in losses {
        let shares = lost.unserved.iter().map(|(name, share)| format!("{} of `{name}`", percent(*share)));
        let shares: Vec<String> = shares.collect();
        let unserved = if shares.is_empty() {
            "all requests are still served".to_owned()
        } else {
            format!("{} cannot be served until it is replaced", shares.join(", "))
        };
        let _ = writeln!(text, "without {}: {unserved}; a plan without it {}", lost.device, than(lost.cost));
    }
    text
}
