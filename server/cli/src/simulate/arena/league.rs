//! `tessera arena --random`: all policies on random workloads, as a league table.

use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;

use anyhow::Context as _;
use charts::{number, percent};
use node::environment::Environment;
use node::output;
use router_core::batch::{BatchOptions, Policy};
use serde::Serialize;
use sim::league::{Defeat, Draw, Entry, League};
use sim::{Setup, SimError, Simulation};
use workload::random;

use crate::simulate::arguments::{self, ArenaArgs};
use crate::simulate::runs::Bar;
use crate::simulate::{DEFAULT_POLICY, reading};

/// Bound on the events of a run; those of random workloads have less than a million.
const EVENTS_MAX: u64 = 40_000_000;

/// Everything for programs.
#[derive(Serialize)]
struct Results<'a> {
    seed: u64,
    random: u64,
    league: &'a League,
    draws: &'a [Draw],
}

/// Runs `count` random workloads, and prints the league or writes it as a page.
pub fn run(count: u64, arguments: &ArenaArgs, environment: &Environment) -> anyhow::Result<ExitCode> {
    let bar = Bar::new(environment.stderr_is_terminal);
    bar.say(format!("{count} random workloads"));
    let draws = draws(arguments.seed, count, arguments::threads(arguments.threads), &bar);
    bar.clear();
    let (draws, seed) = (draws?, arguments.seed);
    let league = League::new(DEFAULT_POLICY, &draws);
    if let Some(out) = &arguments.out {
        fs::write(out, page(&league, seed, count))
            .with_context(|| format!("--out: cannot write `{}`", out.display()))?;
    }
    if arguments.json {
        let results = Results { seed, random: count, league: &league, draws: &draws };
        output::line(&serde_json::to_string_pretty(&results)?);
    } else {
        output::write(tables(&league).as_bytes());
        if let Some(out) = &arguments.out {
            output::line(&format!("page: {}", out.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// All policies on the workloads from `seed` on.
fn draws(seed: u64, count: u64, threads: usize, bar: &Bar) -> Result<Vec<Draw>, SimError> {
    let seeds: Vec<u64> = (seed..=seed.saturating_add(count.saturating_sub(1))).collect();
    let setups: Vec<Setup> =
        Policy::ALL.iter().map(|(name, _)| setup(name)).collect::<Result<_, SimError>>()?;
    bar.expect(seeds.len() * setups.len());
    sim::abreast(threads, &seeds, |&seed| {
        let workload = reading::draw(seed)?.workload;
        let entry = |setup: &Setup| {
            let report = Simulation::new(&workload, setup)?.run(&mut |_| {});
            bar.skip(1);
            report.map(|report| Entry::of(&report))
        };
        Ok(Draw {
            seed,
            lanes: workload.lanes.count,
            models: workload.models.len(),
            load: random::load(seed),
            bound: sim::bound(&workload)?.goodput,
            entries: setups.iter().map(entry).collect::<Result<_, SimError>>()?,
        })
    })
}

fn setup(name: &str) -> Result<Setup, SimError> {
    let setup = Setup::named(name, &BatchOptions::default())?;
    Ok(Setup { max_events: EVENTS_MAX, ..setup })
}

/// The page in Markdown.
fn page(league: &League, seed: u64, count: u64) -> String {
    let last = seed.saturating_add(count.saturating_sub(1));
    format!(
        "<!-- Generated: edit the program, not this page. -->\n# League\n\n\
         All batching policies on {count} random workloads, those of the seeds {seed} to {last}. The decision code of the \
         server runs in virtual time. The same binary writes the same page, byte for byte:\n\n\
         ```sh\ncargo run --release -- arena --random {count} --seed {seed} --out docs/league.md\n```\n\n{READING}{}",
        tables(league)
    )
}

const READING: &str = "\
A workload has 1 to 64 lanes and 1 to 40 models whose batch times differ by a factor of 100, objectives of 2.5 to 12 times the \
time of one request, and a load of 0.5 to 2 times the lane time in batches that take half of the objective. Arrivals are Poisson, \
bursty, even, diurnal or a flash crowd; half of the workloads have noise in the batch times. `tessera simulate random:SEED \
--compare` shows one of them in detail, and also runs the settings of policies that have some; here each runs with its default \
settings. [Policies on the standard workloads](arena.md) are compared separately.

";

/// The league table and what follows from it.
fn tables(league: &League) -> String {
    let mut text = format!(
        "{} random workloads. `{}` answers {} times what the best other policy of each workload answers in time, on average; at \
         least {} times.\n\n",
        league.draws,
        league.policy,
        ratio(league.of_best_other),
        ratio(league.least_of_best_other)
    );
    if !league.left_out.is_empty() {
        let seeds: Vec<String> = league.left_out.iter().map(u64::to_string).collect();
        let _ =
            write!(text, "Left out, because a run reached {EVENTS_MAX} events: {}.\n\n", seeds.join(", "));
    }
    text.push_str(
        "| policy | of the best | of the bound | worst model | first | beaten | most missing |\n|---|---|---|---|---|---|---|\n",
    );
    for row in &league.rows {
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} | {} |",
            row.policy,
            percent(row.of_best),
            percent(row.of_bound),
            percent(row.worst_attainment),
            row.first,
            row.beaten,
            percent(row.most_missing)
        );
    }
    text.push_str(
        "\nMeans over the workloads of: goodput relative to the best policy and to an upper bound for any policy, and attainment of \
         the model where it is lowest. First: no policy had more goodput. Beaten: another had more than 0.5 % more. Most \
         missing: the greatest share of the best policy's goodput that was missing.\n",
    );
    let own = &league.policy;
    defeats(
        &mut text,
        &format!("Where `{own}` is behind"),
        "Another policy has more than 0.5 % more goodput, or 1 % above a load of 0.95.",
        &league.behind,
    );
    defeats(
        &mut text,
        &format!("Where another policy is better than `{own}` throughout"),
        "More than 1 % more goodput, and more than one point more attainment of the worst model.",
        &league.dominated,
    );
    defeats(
        &mut text,
        &format!("Where `{own}` loses requests although lanes are idle"),
        "Lanes are busy for less than 97 % of the time, and attainment is below 97 %. The other policy is the best of \
         the others.",
        &league.idle,
    );
    text
}

fn defeats(text: &mut String, title: &str, about: &str, defeats: &[Defeat]) {
    let _ = write!(text, "\n## {title}\n\n{about}\n\n");
    if defeats.is_empty() {
        text.push_str("None.\n");
        return;
    }
    let _ = write!(
        text,
        "{} workloads. In each cell, the first figure is that of the policy, the second that of the other.\n\n\
         | workload | lanes | models | load | other | goodput | ratio | worst model | lanes busy |\n\
         |---|---|---|---|---|---|---|---|---|\n",
        defeats.len()
    );
    for Defeat { seed, lanes, models, load, own, other } in defeats {
        let _ = writeln!(
            text,
            "| `random:{seed}` | {lanes} | {models} | {load:.2} | `{}` | {} / {} | {} | {} / {} | {} / {} |",
            other.policy,
            number(own.goodput),
            number(other.goodput),
            ratio(if other.goodput > 0.0 { own.goodput / other.goodput } else { 1.0 }),
            percent(own.worst_attainment),
            percent(other.worst_attainment),
            percent(own.lane_busy),
            percent(other.lane_busy)
        );
    }
    if let Some(first) = defeats.first() {
        let _ = write!(text, "\n```sh\ntessera simulate random:{} --compare\n```\n", first.seed);
    }
}

fn ratio(value: f64) -> String {
    format!("{value:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::Command;
    use crate::testing::Cli;
    use clap::Parser as _;

    fn arguments(flags: &[&str]) -> Result<ArenaArgs, String> {
        let words = [&["tessera", "arena"], flags].concat();
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Some(Command::Arena(arguments)) => Ok(arguments),
            other => panic!("expected arena, got {other:?}"),
        }
    }

    fn some_draws(threads: usize) -> Vec<Draw> {
        draws(3, 2, threads, &Bar::new(false)).unwrap()
    }

    #[test]
    fn the_same_seeds_give_the_same_league_on_any_number_of_threads() {
        let one = some_draws(1);
        assert_eq!(one, some_draws(2));
        assert_eq!(one.iter().map(|draw| draw.seed).collect::<Vec<_>>(), [3, 4]);
        let league = League::new(DEFAULT_POLICY, &one);
        let page = page(&league, 3, 2);
        for (name, _) in Policy::ALL {
            assert!(page.contains(&format!("| `{name}` | ")), "{name} in {page}");
        }
        assert!(page.contains("arena --random 2 --seed 3 --out docs/league.md"), "{page}");
        assert!(one.iter().flat_map(|draw| &draw.entries).all(|entry| entry.goodput > 0.0), "{one:?}");
        let results = Results { seed: 3, random: 2, league: &league, draws: &one };
        let json: serde_json::Value =
            serde_json::from_str(&serde_json::to_string_pretty(&results).unwrap()).unwrap();
        assert_eq!(json["league"]["rows"].as_array().unwrap().len(), Policy::ALL.len());
        assert_eq!(json["draws"][1]["seed"], 4);
    }

    #[test]
    fn a_draw_and_the_command_that_reproduces_it_have_the_same_result() {
        let flags = ["tessera", "simulate", "random:3", "--json", "--threads", "1"];
        let Some(Command::Simulate(arguments)) = Cli::try_parse_from(flags).unwrap().command else {
            panic!("expected simulate");
        };
        let study = crate::simulate::study(&arguments, false).unwrap();
        let report = study.standings[0].first().unwrap();
        assert_eq!(some_draws(1)[0].entries[0], Entry::of(report));
        assert_eq!(report.policy, DEFAULT_POLICY);
    }

    #[test]
    fn a_draw_in_which_another_policy_is_ahead_is_listed_with_a_command() {
        let mut draws = some_draws(1);
        draws[1].entries[0].goodput *= 0.5;
        let text = tables(&League::new(DEFAULT_POLICY, &draws));
        assert!(
            text.contains("| `random:4` | ") && text.contains("tessera simulate random:4 --compare"),
            "{text}"
        );
        assert!(text.contains("throughout\n"), "{text}");
    }

    #[test]
    fn mistakes_are_named() {
        for (flags, said) in [
            (&["--random", "0"][..], "0 is not in 1..=10000"),
            (&["--random", "10001"], "10001 is not in 1..=10000"),
            (&["--seed", "4"], "--random <NUMBER>"),
            (&["--json"], "--random <NUMBER>"),
            (&["--random", "2", "--seed", "-1"], "unexpected argument"),
            (&["--random", "2", "--seed", "9223372036854775807"], "is not in 0..=9223372036854765807"),
            (&["--random", "2", "--workloads", "x"], "cannot be used with '--workloads <DIR>'"),
            (&["--random", "2", "--seeds", "3"], "cannot be used with '--seeds <NUMBER>'"),
        ] {
            let error = arguments(flags).unwrap_err();
            assert!(error.contains(said), "{flags:?}: {error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("missing/league.md").display().to_string();
        let arguments = arguments(&["--random", "1", "--threads", "1", "--out", &out]).unwrap();
        let error = run(1, &arguments, &Environment::default()).unwrap_err().to_string();
        assert_eq!(error, format!("--out: cannot write `{out}`"));
    }
}
