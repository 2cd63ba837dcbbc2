//! The configuration as `tessera serve` takes it.

use std::fmt::Write as _;

use anyhow::Context as _;
use models::TimeSpan;
use toml::{Table, Value};
use tuning::{Configuration, Engine};

use super::trial::lanes;

/// What is written besides the configuration.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    pub model: &'a str,
    pub slo: TimeSpan,
    pub cores: u32,
    /// Whether the model has a batch.
    pub batched: bool,
    /// The configuration file that the model was measured with. Other settings of the model are kept.
    pub file: Option<&'a str>,
}

/// The sections `[lanes]` and `[models.NAME]`.
///
/// # Errors
/// When the text of the configuration file is not TOML.
pub fn sections(of: Configuration, about: &About<'_>) -> anyhow::Result<String> {
    let Configuration { setup, batch } = of;
    let mut model = match about.file {
        Some(text) => {
            let file: Table = text.parse().context("--config: expected TOML")?;
            let known = file.get("models").and_then(|models| models.get(about.model));
            known.and_then(Value::as_table).cloned().unwrap_or_default()
        }
        None => Table::new(),
    };
    // The lanes of the whole server are set: numbers of lanes that the model had mean nothing on these.
    for replaced in ["lanes", "ort"] {
        model.remove(replaced);
    }
    let mut set = |key: &str, value: Value| model.insert(key.to_owned(), value);
    set("slo", Value::String(about.slo.to_string()));
    set("engine", Value::String(setup.engine.as_str().to_owned()));
    if about.batched {
        set("max_batch", Value::Integer(i64::from(batch)));
    }
    if setup.engine == Engine::Ort {
        let ort = Table::from_iter([
            ("threads".to_owned(), Value::Integer(i64::from(setup.threads))),
            ("graph_level".to_owned(), Value::String(setup.level.as_str().to_owned())),
            ("spinning".to_owned(), Value::Boolean(setup.spinning)),
        ]);
        set("ort", Value::Table(ort));
    }
    let models = Table::from_iter([(about.model.to_owned(), Value::Table(model))]);
    let models = Table::from_iter([("models".to_owned(), Value::Table(models))]);
    let of_lanes = lanes(setup, about.cores);
    let mut text = String::from("# Lanes serve all models of the server.\n[lanes]\n");
    let _ = writeln!(text, "count = {}", setup.lanes);
    if of_lanes.shared {
        text.push_str("shared = true\n");
    }
    let _ = write!(text, "\n{}", toml::to_string(&models)?);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tuning::{Level, Setup};

    fn about(file: Option<&str>) -> About<'_> {
        let slo = "50ms".parse().unwrap();
        About { model: "m.1", slo, cores: 2, batched: true, file }
    }

    #[test]
    fn other_settings_of_the_model_are_kept() {
        let file = "[models.\"m.1\"]\nfree_batch = true\nlanes = [0]\nmax_batch = 4\nort.threads = 7\nbatching = { policy = \"aimd\" }\n";
        let setup = Setup { engine: Engine::Ort, lanes: 2, threads: 2, level: Level::Basic, spinning: true };
        let text = sections(Configuration { setup, batch: 12 }, &about(Some(file))).unwrap();
        let read: Table = text.parse().unwrap();
        let expected: Table = "[lanes]\ncount = 2\nshared = true\n[models.\"m.1\"]\nfree_batch = true\nslo = \"50ms\"\nengine = \"ort\"\n\
                               max_batch = 12\nort = { threads = 2, graph_level = \"basic\", spinning = true }\n\
                               batching = { policy = \"aimd\" }\n"
            .parse()
            .unwrap();
        assert_eq!(read, expected, "{text}");
    }

    #[test]
    fn tract_has_no_settings_of_onnx_runtime() {
        let setup = Setup { engine: Engine::Tract, lanes: 2, threads: 1, level: Level::All, spinning: false };
        let unbatched = About { batched: false, ..about(None) };
        let text = sections(Configuration { setup, batch: 1 }, &unbatched).unwrap();
        let expected =
            "[lanes]\ncount = 2\n[models.\"m.1\"]\nslo = \"50ms\"\nengine = \"tract\"\n".parse().unwrap();
        assert_eq!(text.parse::<Table>().unwrap(), expected);
    }
}
