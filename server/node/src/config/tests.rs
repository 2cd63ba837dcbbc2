//! Precedence, mistakes and printing, on literal sources.

use std::path::PathBuf;

use super::*;

fn load(file: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Config, Vec<String>> {
    let sources = Sources {
        file: Some((PathBuf::from("tessera.toml"), file.to_owned())),
        environment: environment.iter().map(|(name, raw)| ((*name).to_owned(), (*raw).to_owned())).collect(),
        flags: flags
            .iter()
            .map(|(path, raw)| Assignment {
                path: (*path).to_owned(),
                raw: (*raw).to_owned(),
                origin: Origin::Flag("--set"),
            })
            .collect(),
    };
    Config::load(&sources).map_err(|problems| problems.0.iter().map(ToString::to_string).collect())
}

fn problems(file: &str) -> Vec<String> {
    load(file, &[], &[]).unwrap_err()
}

#[test]
fn defaults_serve_on_loopback() {
    let config = load("", &[], &[]).unwrap();
    assert_eq!(config.server.http.to_string(), "127.0.0.1:8000");
    assert_eq!(config.limits.body.to_string(), "64MiB");
    assert!(config.shared_memory());
    assert_eq!(config.effective.iter().filter(|value| value.origin != Origin::Default).count(), 0);
}

#[test]
fn a_flag_wins_over_the_environment_over_the_file_over_the_default() {
    let file = "[limits]\nbody = \"1MiB\"\nconnections = 10\nstreams = 20\n";
    let environment =
        [("TESSERA_LIMITS_BODY", "2MiB"), ("TESSERA_LIMITS_CONNECTIONS", "11"), ("TESSERA_PORT", "tcp://x")];
    let config = load(file, &environment, &[("limits.body", "3MiB")]).unwrap();
    assert_eq!(config.limits.body.to_string(), "3MiB");
    assert_eq!(config.limits.connections.get(), 11);
    assert_eq!(config.limits.streams, 20);
    let origin =
        |path: &str| config.effective.iter().find(|value| value.path == path).unwrap().origin.to_string();
    assert_eq!(origin("limits.body"), "flag --set");
    assert_eq!(origin("limits.connections"), "environment TESSERA_LIMITS_CONNECTIONS");
    assert_eq!(origin("limits.streams"), "file tessera.toml:4");
    assert_eq!(origin("limits.header"), "default");
}

#[test]
fn models_are_set_from_file_and_flags() {
    let file = "[models.resnet50]\nslo = \"50ms\"\n[models.\"a.b\"]\nmax_batch = 4\n";
    let config = load(file, &[], &[("models.resnet50.slo", "20ms"), ("models.new.max_batch", "8")]).unwrap();
    assert_eq!(config.models["resnet50"].slo.unwrap().to_string(), "20ms");
    assert_eq!(config.models["a.b"].max_batch, Some(4));
    assert_eq!(config.models["new"].max_batch, Some(8));
}

#[test]
fn unknown_keys_are_named_with_their_path_and_a_guess() {
    assert_eq!(
        problems(
            "[limits]\nbodi = \"1MiB\"\n[sever]\n[models.resnet]\nbatching = { maxdelay = \"1ms\" }\nsl0 = \"5ms\""
        ),
        [
            "limits.bodi: unknown key, did you mean `body`? (file tessera.toml:2)",
            "sever: unknown section, did you mean `server`? (file tessera.toml:3)",
            "models.resnet.batching.maxdelay: unknown key, did you mean `max_delay`? (file tessera.toml:5)",
            "models.resnet.sl0: unknown key, did you mean `slo`? (file tessera.toml:6)",
        ]
    );
    let flag = load("", &[], &[("limits.colour", "red"), ("nothing", "1")]).unwrap_err();
    assert!(flag[0].starts_with("limits.colour: unknown key: expected one of body, bodies"), "{flag:?}");
    assert!(flag[1].starts_with("nothing: unknown section") && flag[1].ends_with("(flag --set)"), "{flag:?}");
}

#[test]
fn wrong_types_are_reported_in_words_of_the_file() {
    for (text, expected) in [
        ("[models.m]\nslo = 50", "models.m.slo: expected a duration such as `50ms`, got `50`"),
        ("[limits]\nbody = 64", "limits.body: expected a size such as `16MiB`, got `64`"),
        ("[server]\nhttp = \"localhost\"", "server.http: expected an address such as `127.0.0.1:8000`"),
        ("[lanes]\ncount = 0", "lanes.count: expected a whole number of at least 1, got `0`"),
        (
            "[models.m]\nqueue_limit = -1",
            "models.m.queue_limit: expected a whole number of at least 1, got `-1`",
        ),
        ("[models.m]\nbatching = \"tritn\"", "models.m.batching: expected a table, got `\"tritn\"`"),
        ("[repository]\nload = \"some\"", "repository.load: expected `all` or `explicit`, got `some`"),
    ] {
        assert_eq!(problems(text), [format!("{expected} (file tessera.toml:2)")]);
    }
}

#[test]
fn every_wrong_value_is_reported_with_its_source() {
    let environment = [("TESSERA_LIMITS_JSON_DEPTH", "deep")];
    let found = load(
        "[server]\nhttp = \"nowhere\"\ngrace = 30\n[limits]\nbody = \"64\"\n[models.m]\nslo = \"50\"",
        &environment,
        &[("lanes.count", "0")],
    )
    .unwrap_err();
    for (problem, parts) in found.iter().zip([
        ["server.grace: ", "file"],
        ["server.http: ", "file"],
        ["limits.body: expected a size such as `16MiB`", "file"],
        ["limits.json_depth: ", "environment TESSERA_LIMITS_JSON_DEPTH"],
        ["lanes.count: ", "flag --set"],
        ["models.m.slo: ", "file"],
    ]) {
        assert!(parts.iter().all(|part| problem.contains(part)), "{problem} lacks {parts:?}");
    }
    assert_eq!(found.len(), 6, "{found:?}");
}

#[test]
fn variables_of_other_programs_are_left_alone() {
    for name in ["TESSERA_DATA", "TESSERA_BIN", "TESSERA_K8S", "TESSERA_FOLDER", "TESSERA_VERSION"] {
        assert!(load("", &[(name, "any")], &[]).is_ok(), "{name}");
    }
    for (name, meant) in [("TESSERA_LIMITS_BODI", "LIMITS_BODY"), ("TESSERA_FLEET_CAA", "FLEET_CA")] {
        let found = load("", &[(name, "any")], &[]).unwrap_err();
        assert!(found[0].contains(&format!("did you mean `TESSERA_{meant}`?")), "{found:?}");
    }
}

#[test]
fn contradictions_are_found() {
    let found = problems(
        "[lanes]\ncount = 2\ncores = [[0], [0]]\n[limits]\nbodies = \"1MiB\"\ntensors = 5000\nheader = \"1B\"\n\
         [repository]\nengine = \"trakt\"\npath = \"/no/such/folder\"\n[models.\"../x\"]\n[server]\nlog_level = \"a=b=c\"",
    );
    for part in [
        "lanes.count: set together",
        "lanes.cores: core 0 is in two lanes",
        "limits.bodies: 1MiB: expected at least limits.body",
        "limits.tensors: 5000: expected at most",
        "limits.header: 1B: expected 1KiB to 64KiB",
        "repository.engine: unknown engine `trakt`",
        "repository.path: `/no/such/folder` is not a folder",
        "models.../x: ",
        "server.log_level: ",
    ] {
        assert!(found.iter().any(|problem| problem.starts_with(part)), "{part} is missing in {found:?}");
    }
}

#[test]
fn a_log_level_is_a_level_or_a_list_of_filters() {
    for (level, fine) in [
        ("info", true),
        ("OFF", true),
        ("info,router=debug", true),
        ("router=debug", true),
        ("loud", false),
        ("info,loud", false),
        ("a=b=c", false),
    ] {
        let text = format!("[server]\nlog_level = \"{level}\"");
        let sources = Sources { file: Some(("tessera.toml".into(), text)), ..Sources::default() };
        assert_eq!(Config::load(&sources).is_ok(), fine, "{level}");
    }
}

#[test]
fn settings_of_a_model_that_is_not_in_the_repository_are_refused_with_the_nearest_name() {
    let check = |text: &str| {
        let sources = Sources { file: Some(("tessera.toml".into(), text.to_owned())), ..Sources::default() };
        let checked = Config::load(&sources).unwrap().check_models(["resnet50", "bert"].into_iter());
        checked.err().unwrap_or_default().0.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let slo = "slo = \"50ms\"";
    assert_eq!(check(&format!("[models.resnet50]\n{slo}\n[models.bert]\n{slo}")), [""; 0]);
    assert_eq!(
        check(&format!("[models.resnet5]\n{slo}\n[models.x]\n{slo}")),
        [
            "models.resnet5: the repository has no such model, did you mean `resnet50`? (file tessera.toml:2)",
            "models.x: the repository has no such model: expected a model of the repository, or \
             `repository.allow_unknown_models = true` (file tessera.toml:4)",
        ]
    );
    assert_eq!(check(&format!("[repository]\nallow_unknown_models = true\n[models.x]\n{slo}")), [""; 0]);
}

#[test]
fn text_that_is_not_toml_is_reported_by_line() {
    let found = problems("[server]\nhttp = \n");
    assert!(found[0].ends_with("(file tessera.toml:2)"), "{found:?}");
    assert!(problems("server = 3")[0].starts_with("server: expected a section [server]"));
    assert!(problems("models = 3")[0].starts_with("models: expected tables"));
    assert!(problems("[models]\nm = 3")[0].starts_with("models.m: expected a table"));
}

#[test]
fn what_is_printed_is_a_configuration_that_reads_back_the_same() {
    let file = "[server]\nmetrics = \"127.0.0.1:0\"\n[lanes]\ncores = [[0], [1]]\n[models.m]\nslo = \"50ms\"\nversions = [1, 2]\n[models.\"a.b\"]\nmax_batch = 4";
    let printed = load(file, &[], &[("limits.body", "1MiB")]).unwrap().print();
    for part in [
        "\n[limits]\n# Bytes of one request body",
        "\nbody = \"1MiB\"  # flag --set\n",
        "\n[models.m]\n# Service-level objective",
        "\nslo = \"50ms\"  # file tessera.toml:6\n",
        "\n# max_batch = 32  # not set; default: 64 for a model",
        "\n# batching.policy = \"triton\"  # not set; default: `deadline`",
        "\n# threads = 2  # not set; default: half the number of cores",
    ] {
        assert!(printed.contains(part), "{part} is missing in\n{printed}");
    }
    let again = load(&printed, &[], &[]).unwrap();
    assert_eq!(again.limits.body.to_string(), "1MiB");
    assert_eq!(again.lanes.cores, Some(vec![vec![0], vec![1]]));
    assert_eq!(again.models["a.b"].max_batch, Some(4));
}

#[test]
fn shared_memory_is_off_where_others_can_connect_unless_it_is_asked_for() {
    assert!(!load("[server]\nhttp = \"0.0.0.0:8000\"", &[], &[]).unwrap().shared_memory());
    assert!(
        load("[server]\nhttp = \"0.0.0.0:8000\"\nshared_memory = true", &[], &[]).unwrap().shared_memory()
    );
    assert!(!load("[server]\nshared_memory = false", &[], &[]).unwrap().shared_memory());
}
