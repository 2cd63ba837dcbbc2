//! The page.

use std::fmt::Write as _;

use tuning::{Constants, Path, Space, WORDS};

use crate::data::Model;
use crate::runs::{MULTIPLES, SEEDS, from_anywhere, never, others, ours, paths, regret, summary};

/// The aim: within this share of the best.
const WITHIN: f64 = 0.01;
/// A share that repeated trials can tell apart.
const WIDE: f64 = 0.05;
/// Ours, which knows what `morphling` knows, and ours with other first trials.
const WITH_OTHERS: &str = "tessera --from";
const ANYWHERE: &str = "tessera, first trial anywhere";
const AFTER: [usize; 3] = [10, 20, 30];

/// Paths of a search.
type Found = (&'static str, Vec<Path>);

pub fn page(space: &Space, models: &[Model]) -> String {
    let mut text = String::from(include_str!("guide.txt"));
    let of_model = |(at, model): (usize, &Model)| -> Vec<Found> {
        let words = WORDS.iter().map(|(word, _)| (*word, paths(space, models, at, word)));
        let with_others = ours(space, model, Constants::default(), &others(models, at));
        let anywhere = from_anywhere(space, model, Constants::default());
        words.chain([(WITH_OTHERS, with_others), (ANYWHERE, anywhere)]).collect()
    };
    let all: Vec<Vec<Found>> = models.iter().enumerate().map(of_model).collect();
    aims(&mut text, models, &all);
    noise(&mut text, models);
    for (model, of) in models.iter().zip(&all) {
        table(&mut text, model, of);
    }
    ablation(&mut text, space, models);
    text
}

fn of<'a>(all: &'a [Found], word: &str) -> &'a [Path] {
    all.iter().find(|(name, _)| *name == word).map(|(_, paths)| paths.as_slice()).unwrap_or_default()
}

fn aims(text: &mut String, models: &[Model], all: &[Vec<Found>]) {
    let _ = write!(text, "## Aims\n\n| aim | reached |\n|---|---|\n");
    let mean = |all: &[Found], word: &str| summary(of(all, word), |path| path.trials_to(WITHIN)).0;
    let miss = |reached: bool| if reached { "" } else { " (**missed**)" };
    let each = |what: &dyn Fn(&[Found]) -> String| {
        let words = models.iter().zip(all).map(|(model, all)| format!("{}: {}", model.name, what(all)));
        words.collect::<Vec<_>>().join("; ")
    };
    let ours = each(&|all| {
        let trials = mean(all, "tessera");
        format!("{trials:.1}{}", miss(trials <= 30.0))
    });
    let _ = writeln!(
        text,
        "| `tessera`: at most 30 trials on average to within 1 % of the best of 720 | {ours} |"
    );
    let fewest = each(&|all| {
        let words = WORDS.iter().filter(|(word, _)| !["tessera", "morphling"].contains(word));
        let best =
            words.map(|(word, _)| (*word, mean(all, word))).min_by(|one, other| one.1.total_cmp(&other.1));
        let (word, trials) = best.unwrap_or(("none", f64::NAN));
        format!("next is `{word}` with {trials:.1}{}", miss(mean(all, "tessera") < trials))
    });
    let _ = writeln!(
        text,
        "| `tessera`: fewer trials than every other search that knows no other model | {fewest} |"
    );
    let knowing = each(&|all| {
        let (ours, theirs) = (mean(all, WITH_OTHERS), mean(all, "morphling"));
        format!("{ours:.1}, `morphling` {theirs:.1}{}", miss(ours < theirs))
    });
    let _ = writeln!(
        text,
        "| `tessera` with the grids of the other models: fewer than `morphling` | {knowing} |"
    );
    let walks = each(&|all| {
        let steps = |word: &str| summary(of(all, word), |path| path.steps_to(WITHIN)).0;
        let ratio = steps("q-learning") / steps("rrl");
        format!("{ratio:.1} x{}", miss(ratio > 8.0))
    });
    let _ = writeln!(text, "| `rrl`: more than 8 times fewer steps than `q-learning` | {walks} |\n");
}

fn noise(text: &mut String, models: &[Model]) {
    text.push_str(
        "## Noise\n\nThe searches see the median of the rounds. A single trial of a user is off by as much as these were:\n\n\
         | model | rounds | median difference of a trial from the median of its rounds | 90th percentile | within 1 % of the best of 720 | within 5 % |\n\
         |---|--:|--:|--:|--:|--:|\n",
    );
    for model in models {
        let sizes = model.noise();
        let at = |share: f64| {
            sizes.get((share * sizes.len() as f64) as usize).copied().unwrap_or(f64::NAN) * 100.0
        };
        let best = model.table.iter().flatten().map(|one| one.rows_per_s).fold(0.0, f64::max);
        let near = |share: f64| {
            model.table.iter().flatten().filter(|one| one.rows_per_s >= best * (1.0 - share)).count()
        };
        let _ = writeln!(
            text,
            "| {} | {} | {:.1} % | {:.1} % | {} | {} |",
            model.name,
            model.round_count(),
            at(0.5),
            at(0.9),
            near(0.01),
            near(0.05)
        );
    }
    text.push_str("\nThe last two columns count configurations by rows/s, without an objective.\n\n");
}

fn table(text: &mut String, model: &Model, all: &[Found]) {
    let _ = write!(
        text,
        "## {}\n\nTrials to within 1 % (and 5 %) of the best of 720, and what is missing to it after some trials: means over the objectives and seeds.\n\n\
         | search | paths | mean trials | median | 90th percentile | never | mean trials to 5 % | missing after 10 | 20 | 30 |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        model.name
    );
    for (name, paths) in all {
        let (mean, median, tail) = summary(paths, |path| path.trials_to(WITHIN));
        let wide = summary(paths, |path| path.trials_to(WIDE)).0;
        let missing = AFTER.map(|trials| format!("{:.1} %", 100.0 * regret(paths, trials))).join(" | ");
        let _ = writeln!(
            text,
            "| {name} | {} | {mean:.1} | {median:.0} | {tail:.0} | {:.0} % | {wide:.1} | {missing} |",
            paths.len(),
            100.0 * never(paths, WITHIN)
        );
    }
    let steps = ["rrl", "q-learning"].map(|word| {
        let (mean, median, _) = summary(of(all, word), |path| path.steps_to(WITHIN));
        format!("`{word}` {mean:.0} steps (median {median:.0})")
    });
    let _ = writeln!(
        text,
        "\nSteps to within 1 %, with those over configurations that were tried before: {}.\n",
        steps.join(", ")
    );
}

fn ablation(text: &mut String, space: &Space, models: &[Model]) {
    text.push_str(
        "## Constants of `tessera`\n\nMean trials to within 1 % with other values of each constant, beginning with the default settings, and from any first trial.\n\n| constant | value |",
    );
    for model in models {
        let _ = write!(text, " {} |", model.name);
    }
    let _ = write!(text, "\n|---|--:|{}\n", "--:|".repeat(models.len()));
    let usual = Constants::default();
    let mut line = |name: &str, value: String, constants: Constants| {
        let _ = write!(text, "| {name} | {value} |");
        let mean = |paths: &[Path]| summary(paths, |path| path.trials_to(WITHIN)).0;
        for model in models {
            let (default, any) = (ours(space, model, constants, &[]), from_anywhere(space, model, constants));
            let _ = write!(text, " {:.1}, {:.1} |", mean(&default), mean(&any));
        }
        text.push('\n');
    };
    line("as they are", String::new(), usual);
    type Set = fn(&mut Constants) -> &mut f64;
    // Those without which the search still works come first.
    let each: [(&str, Set); 11] = [
        ("deviation of a value of a knob", |of| &mut of.knob),
        ("deviation of the threads of all lanes, as a multiple of that", |of| &mut of.threads),
        ("deviation of a pair of values", |of| &mut of.pair),
        ("deviation of a setup", |of| &mut of.setup),
        ("deviation of the shared curve", |of| &mut of.shared_curve),
        ("deviation of the curve of a setup", |of| &mut of.own_curve),
        ("how far deviations are from these, as a power of two", |of| &mut of.spread),
        ("length of curves", |of| &mut of.length),
        ("deviation of trials", |of| &mut of.noise),
        ("deviation of the tail", |of| &mut of.tail),
        ("gain at which it stops", |of| &mut of.gain_min),
    ];
    for (name, set) in each {
        for factor in [0.5, 2.0] {
            let mut constants = usual;
            *set(&mut constants) *= factor;
            let value = *set(&mut constants);
            line(name, format!("{value}"), constants);
        }
    }
    for (name, set) in each.into_iter().take(7) {
        let mut constants = usual;
        *set(&mut constants) = 0.0;
        line(name, "0".to_owned(), constants);
    }
    let _ = writeln!(
        text,
        "\nObjectives are {} times the fastest batch of the model. Seeds {} to {}.",
        MULTIPLES.map(|multiple| multiple.to_string()).join(", "),
        SEEDS.start(),
        SEEDS.end()
    );
}
