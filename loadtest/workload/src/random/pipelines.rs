//! Random pipelines.

use std::fmt::Write as _;

use super::{Draw, REQUESTS, SECONDS, WARMUP, micros};
use crate::draws::exponential;

struct Stage {
    name: String,
    model: usize,
    after: Vec<usize>,
    fan_out: f64,
    answers: f64,
    /// Rows of it for a request, in the mean.
    rows: f64,
}

struct Pipeline {
    stages: Vec<Stage>,
    weight: f64,
}

pub(super) fn document(seed: u64, draw: &mut Draw) -> String {
    let lanes = draw.log_uniform(1.0, 16.99).floor();
    let load = draw.uniform(0.5, 1.3);
    let models: Vec<super::Model> =
        (0..draw.uniform(3.0, 8.99) as usize).map(|_| draw.model(false)).collect();
    let pipelines: Vec<Pipeline> =
        (0..1 + usize::from(draw.chance(0.4))).map(|_| pipeline(draw, models.len())).collect();
    let alone = |stage: &Stage| {
        models.get(stage.model).map_or(0.0, |model| model.row * stage.rows.max(1.0) + model.batch)
    };
    let efficient = |model: usize| models.get(model).map_or(0.0, super::Model::request_time);
    // Models with traffic of their own.
    let own: Vec<f64> = models
        .iter()
        .map(|_| if draw.chance(0.3) { exponential(&mut draw.0).max(0.02) } else { 0.0 })
        .collect();
    let weights = own.iter().sum::<f64>() + pipelines.iter().map(|one| one.weight).sum::<f64>();
    let share = |weight: f64| load * lanes * weight / weights;
    let rates: Vec<f64> = pipelines
        .iter()
        .map(|one| {
            let time: f64 = one.stages.iter().map(|stage| stage.rows * efficient(stage.model)).sum();
            (share(one.weight) / time).max(0.01)
        })
        .collect();
    let own_rates: Vec<f64> =
        (0..).zip(&own).map(|(model, weight)| share(*weight) / efficient(model)).collect();
    let rate = rates.iter().chain(&own_rates).sum::<f64>();
    let seconds = (REQUESTS / 4.0 / rate).clamp(SECONDS.0, SECONDS.1).ceil();
    let noise = draw.noise();
    let mut text = format!(
        "name = \"pipelines-{seed}\"\nabout = \"random pipelines on {lanes} lanes at {load:.2} times their lane time\"\n\
         seed = {seed}\nduration = \"{}s\"\nwarmup = \"{WARMUP}s\"\n\n[lanes]\ncount = {lanes}\n{noise}",
        seconds + WARMUP
    );
    for ((number, model), rate) in (0..).zip(&models).zip(&own_rates) {
        let is_stage = pipelines.iter().flat_map(|one| &one.stages).any(|stage| stage.model == number);
        if !is_stage && *rate <= 0.0 {
            continue;
        }
        let _ = write!(
            text,
            "\n[models.m{number}]\nslo = \"{}us\"\nprofile = {{ alpha = \"{}us\", beta = \"{}us\", max_batch = {} }}\n",
            micros(model.slo),
            micros(model.row),
            micros(model.batch),
            model.max_batch
        );
        if *rate > 0.0 {
            let arrivals = draw.arrivals(WARMUP + seconds);
            let _ = write!(text, "rate = {:.3}\narrivals = {arrivals}\n", rate.max(0.001));
        }
    }
    for ((number, pipeline), rate) in (0..).zip(&pipelines).zip(&rates) {
        let mut longest: Vec<f64> = Vec::new();
        for stage in &pipeline.stages {
            let before =
                stage.after.iter().filter_map(|before| longest.get(*before).copied()).fold(0.0, f64::max);
            longest.push(before + alone(stage));
        }
        let slo = draw.log_uniform(2.5, 10.0) * longest.into_iter().fold(0.0, f64::max);
        let arrivals = draw.arrivals(WARMUP + seconds);
        let _ = write!(
            text,
            "\n[pipelines.p{number}]\nslo = \"{}us\"\nrate = {rate:.3}\narrivals = {arrivals}\nstages = [\n",
            micros(slo)
        );
        for stage in &pipeline.stages {
            let from: Vec<String> = stage
                .after
                .iter()
                .filter_map(|before| Some(format!("\"{}\"", pipeline.stages.get(*before)?.name)))
                .collect();
            let _ = writeln!(
                text,
                "  {{ name = \"{}\", model = \"m{}\", from = [{}], fan_out = {:.2}, answers = {:.2} }},",
                stage.name,
                stage.model,
                from.join(", "),
                stage.fan_out,
                stage.answers
            );
        }
        text.push_str("]\n");
    }
    text
}

/// Half of them are chains. In the others, each stage follows one or two earlier ones.
fn pipeline(draw: &mut Draw, models: usize) -> Pipeline {
    let count = draw.uniform(2.0, 5.99) as usize;
    let chain = draw.chance(0.5);
    let fans = draw.chance(0.5);
    let early = draw.chance(0.2);
    let mut stages: Vec<Stage> = Vec::new();
    for number in 0..count {
        let pick =
            |draw: &mut Draw| (draw.uniform(0.0, number as f64) as usize).min(number.saturating_sub(1));
        let mut after = match (number, chain) {
            (0, _) => Vec::new(),
            (_, true) => vec![number - 1],
            (_, false) => vec![pick(draw)],
        };
        if !chain && number > 1 && draw.chance(0.4) {
            let other = pick(draw);
            if !after.contains(&other) {
                after.push(other);
            }
        }
        let rows = after
            .iter()
            .filter_map(|before| {
                stages.get(*before).map(|before| before.rows * before.fan_out * (1.0 - before.answers))
            })
            .fold(None, |most: Option<f64>, rows| Some(most.map_or(rows, |most| most.max(rows))));
        let fan_out = if fans && number + 1 < count { draw.log_uniform(0.3, 4.0) } else { 1.0 };
        let fan_out = (fan_out * 100.0).round() / 100.0;
        let answers =
            if early && number == 0 { (draw.uniform(0.2, 0.8) * 100.0).round() / 100.0 } else { 0.0 };
        let model = (draw.uniform(0.0, models as f64) as usize).min(models - 1);
        stages.push(Stage {
            name: format!("s{number}"),
            model,
            after,
            fan_out,
            answers,
            rows: rows.unwrap_or(1.0),
        });
    }
    Pipeline { stages, weight: exponential(&mut draw.0).max(0.1) * 2.0 }
}
