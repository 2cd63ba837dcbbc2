//! Stages that give other than one row for a row: synthetic models that give the rows which the simulator draws.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use loadtest::Samples;
use workload::{Arrivals, Model, Pipeline, Workload};

/// Most requests of a pipeline: as many as recorded requests and tables may be.
const REQUESTS_MAX: usize = 100_000;
/// Bytes of an element of a synthetic input.
const ELEMENT: u64 = 4;

/// For each model, by its number, the rows that come of each row of each request, if it is a stage that gives other than one.
pub type Tables = BTreeMap<u32, Vec<Vec<u32>>>;

/// The tables of the models of a workload. Empty if each stage gives a row for each row.
///
/// # Errors
/// A model that another stage runs too, so that it cannot know the request of a row.
pub fn tables(workload: &Workload) -> anyhow::Result<Tables> {
    let mut tables = Tables::new();
    for (number, own, pipeline) in workload.pipelines().filter(|(.., pipeline)| changes_rows(pipeline)) {
        for stage in pipeline.stages.iter().filter(|stage| stage.fan_out.mean() != 1.0) {
            check_only(workload, own, stage)?;
        }
        let count = requests(workload, number, own)?;
        for request in 0..count {
            let rows = pipeline.rows_of((workload.seed, &own.name), request as u64);
            for (stage, rows) in pipeline.stages.iter().zip(rows) {
                if stage.fan_out.mean() != 1.0 {
                    tables.entry(stage.model).or_default().push(rows);
                }
            }
        }
    }
    Ok(tables)
}

/// The requests of each pipeline that has such a stage, by its name: the values of a row begin with the number of the request.
///
/// # Errors
/// More requests than can be prepared.
pub fn samples(workload: &Workload) -> anyhow::Result<BTreeMap<String, Arc<Samples>>> {
    let mut samples = BTreeMap::new();
    for (number, own, _) in workload.pipelines().filter(|(.., pipeline)| changes_rows(pipeline)) {
        let elements = own.row_bytes.div_ceil(ELEMENT);
        anyhow::ensure!(
            elements >= 2,
            "pipelines.{}.row_bytes: with fan_out, a row begins with two numbers: expected 8 or more, got {}",
            own.name,
            own.row_bytes
        );
        let rest = ",0".repeat(usize::try_from(elements)?.saturating_sub(1));
        let mut text = String::new();
        for request in 0..requests(workload, number, own)?.max(1) {
            let input = format!("\"name\":\"input\",\"datatype\":\"FP32\",\"shape\":[1,{elements}]");
            writeln!(text, "{{\"inputs\":[{{{input},\"data\":[{request}{rest}]}}]}}")?;
        }
        samples.insert(own.name.clone(), Arc::new(Samples::parse(&own.name, &text)?));
    }
    Ok(samples)
}

fn changes_rows(pipeline: &Pipeline) -> bool {
    pipeline.stages.iter().any(|stage| stage.fan_out.mean() != 1.0)
}

fn requests(workload: &Workload, number: u32, own: &Model) -> anyhow::Result<usize> {
    let count =
        Arrivals::new(workload).filter(|offered| offered.model == number).take(REQUESTS_MAX + 1).count();
    anyhow::ensure!(
        count <= REQUESTS_MAX,
        "pipelines.{}.rate: offers more than {REQUESTS_MAX} requests: expected fewer, because a stage has fan_out",
        own.name
    );
    Ok(count)
}

fn check_only(workload: &Workload, own: &Model, stage: &workload::PipelineStage) -> anyhow::Result<()> {
    let stages = workload.pipelines().flat_map(|(.., pipeline)| &pipeline.stages);
    let is_shared = stages.filter(|other| other.model == stage.model).count() > 1
        || workload.families().flat_map(|(.., family)| &family.variants).any(|one| one.model == stage.model)
        || workload
            .models
            .get(stage.model as usize)
            .is_some_and(|model| model.expected_requests(u64::MAX) > 0.0);
    anyhow::ensure!(
        !is_shared,
        "pipelines.{}: stage `{}`: a synthetic model with fan_out knows the rows of one stage: expected a model that only this stage runs, without requests of its own",
        own.name,
        stage.name
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::simulate::reading::parse;

    fn workload(stages: &str, more: &str) -> Workload {
        let text = format!(
            r#"name = "fan-out"
duration = "2s"
[lanes]
count = 2
[models.a]
profile = {{ alpha = "1ms", beta = "5ms", max_batch = 8 }}
[models.b]
profile = {{ alpha = "1ms", beta = "5ms", max_batch = 8 }}
{more}
[pipelines.p]
slo = "100ms"
rate = 50
row_bytes = 8
stages = [{stages}]
"#
        );
        parse(&text, Path::new("fan-out.toml")).unwrap()
    }

    #[test]
    fn models_have_the_rows_that_the_simulator_draws() {
        let of = workload(
            r#"{ model = "a", fan_out = 2.5 }, { model = "b", from = "a", fan_out = [[0, 0.5], [3, 0.5]] }"#,
            "",
        );
        let tables = tables(&of).unwrap();
        let (number, own, pipeline) = of.pipelines().next().unwrap();
        assert_eq!(tables[&0].len(), Arrivals::new(&of).filter(|offered| offered.model == number).count());
        for (request, (of_a, of_b)) in tables[&0].iter().zip(&tables[&1]).enumerate() {
            let drawn = |stage, rows| pipeline.draw((of.seed, &own.name), request as u64, stage, rows).1;
            assert_eq!(of_a, &[drawn(0, 1)]);
            assert_eq!((of_b.len() as u32, of_b.iter().sum::<u32>()), (of_a[0], drawn(1, of_a[0])));
        }
        let samples = samples(&of).unwrap();
        assert_eq!(samples.keys().collect::<Vec<_>>(), ["p"]);
        let plain = workload(r#"{ model = "a" }, { model = "b", from = "a" }"#, "");
        assert!(super::tables(&plain).unwrap().is_empty() && super::samples(&plain).unwrap().is_empty());
    }

    #[test]
    fn a_model_of_several_stages_cannot_have_a_table() {
        let twice =
            r#"{ model = "a", fan_out = 2 }, { name = "again", model = "a", from = "a" }, { model = "b" }"#;
        let expected = "pipelines.p: stage `a`: a synthetic model with fan_out knows the rows of one stage";
        let error = tables(&workload(twice, "")).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        let own = workload(r#"{ model = "a", fan_out = 2 }"#, "slo = \"50ms\"\nrate = 1");
        assert!(tables(&own).is_ok(), "another model may have requests of its own");
    }
}
