//! The pipelines and families of a workload as settings of a server with synthetic models.

use super::families;
use toml::{Table, Value};
use workload::{Deadlines, Model, ObjectiveSplit, Pipeline, PipelineStage, Workload};

/// The configuration file of a server. Empty without pipelines and families.
///
/// # Errors
/// Synthetic models cannot do what a pipeline asks for.
pub fn config(workload: &Workload) -> anyhow::Result<String> {
    let mut tables = Table::new();
    for (_, model, pipeline) in workload.pipelines() {
        tables.insert(model.name.clone(), Value::Table(table(model, pipeline, workload)?));
    }
    let sections = [("pipelines", tables), ("families", families::tables(workload, |model| &model.name))];
    let sections = sections.into_iter().filter(|(_, tables)| !tables.is_empty());
    let file: Table = sections.map(|(name, tables)| (name.to_owned(), Value::Table(tables))).collect();
    Ok(toml::to_string(&file)?)
}

fn table(own: &Model, pipeline: &Pipeline, workload: &Workload) -> anyhow::Result<Table> {
    let field = format!("pipelines.{}", own.name);
    let mut stages = Vec::new();
    for stage in &pipeline.stages {
        let Some(model) = workload.models.get(stage.model as usize) else { continue };
        let name = &stage.name;
        anyhow::ensure!(
            stage.answers == 0.0,
            "{field}: stage `{name}`: synthetic models answer no request early: expected no answers"
        );
        anyhow::ensure!(
            model.row_bytes == own.row_bytes,
            "{field}: stage `{name}`: row_bytes is {}: expected that of the pipeline, {}",
            model.row_bytes,
            own.row_bytes
        );
        let source = match stage.after.as_slice() {
            [] => "input".to_owned(),
            [only] => output(pipeline.stages.get(*only as usize)),
            _ => anyhow::bail!(
                "{field}: stage `{name}`: synthetic models have one input: expected one stage in `from`"
            ),
        };
        let inputs = Table::from_iter([("input".to_owned(), Value::String(source))]);
        stages.push(Value::Table(Table::from_iter([
            ("name".to_owned(), Value::String(name.clone())),
            ("model".to_owned(), Value::String(model.name.clone())),
            ("inputs".to_owned(), Value::Table(inputs)),
            ("fan_out".to_owned(), Value::Float(stage.fan_out.mean())),
        ])));
    }
    let is_last = |number: u32| pipeline.stages.iter().all(|stage| !stage.after.contains(&number));
    let last = (0_u32..).zip(&pipeline.stages).filter(|(number, _)| is_last(*number));
    let outputs = last.map(|(_, stage)| (stage.name.clone(), Value::String(output(Some(stage)))));
    let mut table = Table::from_iter([
        ("stages".to_owned(), Value::Array(stages)),
        ("outputs".to_owned(), Value::Table(outputs.collect())),
        ("deadlines".to_owned(), Value::try_from(pipeline.deadlines)?),
    ]);
    match &pipeline.split {
        ObjectiveSplit::Even => {}
        ObjectiveSplit::Shares(shares) => {
            let shares = pipeline.stages.iter().zip(shares);
            let shares = shares.map(|(stage, share)| (stage.name.clone(), Value::Float(*share)));
            table.insert("split".to_owned(), Value::Table(shares.collect()));
        }
        ObjectiveSplit::Plan | ObjectiveSplit::Nexus => anyhow::bail!(
            "{field}.split: expected \"even\", or shares as `tessera simulate` and `tessera plan --explain` print them"
        ),
    }
    Ok(table)
}

/// Pipelines of a given repository are its ensembles, which divide objectives evenly.
///
/// # Errors
/// A pipeline that an ensemble cannot be.
pub fn check_ensembles(workload: &Workload) -> anyhow::Result<()> {
    for (_, own, pipeline) in workload.pipelines() {
        let name = &own.name;
        anyhow::ensure!(
            pipeline.split == ObjectiveSplit::Even && pipeline.deadlines == Deadlines::EndToEnd,
            "pipelines.{name}: with --repository it is an ensemble of the repository: expected neither `split` nor `deadlines`"
        );
        let changes_rows =
            pipeline.stages.iter().find(|stage| stage.fan_out.mean() != 1.0 || stage.answers != 0.0);
        if let Some(stage) = changes_rows {
            let stage = &stage.name;
            anyhow::bail!(
                "pipelines.{name}: stage `{stage}`: an ensemble gives a row for each row: expected no fan_out and no answers"
            );
        }
    }
    Ok(())
}

fn output(stage: Option<&PipelineStage>) -> String {
    stage.map(|stage| format!("{}.output", stage.name)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const MODELS: &str = r#"name = "pipelines"
duration = "1s"
[lanes]
count = 2
[models.a]
slo = "50ms"
rate = 1
profile = { alpha = "1ms", beta = "5ms", max_batch = 8 }
[models.b]
slo = "50ms"
rate = 1
profile = { alpha = "1ms", beta = "5ms", max_batch = 8 }
"#;

    fn of(stages: &str, more: &str) -> anyhow::Result<String> {
        let text = format!("{MODELS}[pipelines.p]\nslo = \"100ms\"\nrate = 1\nstages = [{stages}]\n{more}");
        config(&crate::simulate::reading::parse(&text, Path::new("pipelines.toml")).unwrap())
    }

    #[test]
    fn a_server_reads_the_settings() {
        let text = of(
            r#"{ model = "a", fan_out = 2.5 }, { model = "b", from = "a" }, { name = "c", model = "b", from = "a" }"#,
            "split = { a = 0.4, b = 0.6, c = 0.5 }\ndeadlines = \"static\"\n",
        )
        .unwrap();
        let file: Table = text.parse().unwrap();
        let settings = file["pipelines"]["p"].clone();
        let settings: node::config::PipelineSettings = settings.try_into().unwrap();
        assert_eq!(settings.stages.len(), 3);
        assert_eq!(settings.stages[2].inputs["input"], "a.output");
        assert_eq!(settings.stages.iter().map(|stage| stage.fan_out).collect::<Vec<_>>(), [2.5, 1.0, 1.0]);
        assert_eq!(settings.outputs.keys().collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!(settings.split.unwrap()["b"], 0.6);
        assert_eq!(settings.deadlines, router_core::Split::Static);
    }

    #[test]
    fn what_ensembles_cannot_do_is_named() {
        let checked = |stages: &str, more: &str| {
            let text =
                format!("{MODELS}[pipelines.p]\nslo = \"100ms\"\nrate = 1\nstages = [{stages}]\n{more}");
            check_ensembles(&crate::simulate::reading::parse(&text, Path::new("pipelines.toml")).unwrap())
        };
        let stages = r#"{ model = "a" }, { model = "b", from = "a" }"#;
        assert!(checked(stages, "").is_ok());
        let error = checked(stages, "deadlines = \"static\"").unwrap_err().to_string();
        assert!(error.contains("pipelines.p: with --repository it is an ensemble"), "{error}");
        let error = checked(r#"{ model = "a", fan_out = 2 }"#, "").unwrap_err().to_string();
        assert!(error.contains("stage `a`: an ensemble gives a row for each row"), "{error}");
    }

    #[test]
    fn what_synthetic_models_cannot_do_is_named() {
        for (stages, more, said) in [
            (r#"{ model = "a", answers = 0.5 }"#, "", "stage `a`: synthetic models answer no request early"),
            (
                r#"{ model = "a" }, { model = "b" }, { name = "c", model = "b", from = ["a", "b"] }"#,
                "",
                "stage `c`: synthetic models have one input",
            ),
            (r#"{ model = "a" }"#, "row_bytes = 64", "row_bytes is 1024: expected that of the pipeline, 64"),
            (r#"{ model = "a" }"#, "split = \"plan\"", "pipelines.p.split: expected \"even\", or shares"),
        ] {
            let error = of(stages, more).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
