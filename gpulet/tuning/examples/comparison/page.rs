//! The page.

use std::fmt::Write as _;

use tuning::{Constants, Path, Space, WORDS};

use crate::data::Model;
use crate::runs::{MULTIPLES, SEEDS, from_anywhere, never, ours, paths, regret, summary};

/// The aim: within this share of the best.
const WITHIN: f64 = 0.01;
/// A share that repeated trials can tell apart.
const WIDE: f64 = 0.05;
const AFTER: [usize; 3] = [10, 20, 30];

/// Paths of a search.
type Found = (&'static str, Vec<Path>);

pub fn page(space: &Space, models: &[Model]) -> String {
    let mut text = String::from(include_str!("guide.txt"));
    let all: Vec<Vec<Found>> = (0..models.len())
        .map(|at| WORDS.iter().map(|(word, _)| (*word, paths(space, models, at, word))).collect())
        .collect();
    aims(&mut text, models, &all);
    noise(&mut text, models);
    for (model, of) in models.iter().zip(&all) {
        table(&mut text, model, of, &from_anywhere(space, model));
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
        let words = WORDS.iter().filter(|(word, _)| *word != "tessera");
        let best =
            words.map(|(word, _)| (*word, mean(all, word))).min_by(|one, other| one.1.total_cmp(&other.1));
        let (word, trials) = best.unwrap_or(("none", f64::NAN));
        format!("next is `{word}` with {trials:.1}{}", miss(mean(all, "tessera") < trials))
    });
    let _ = writeln!(text, "| `tessera`: fewer trials than every other search | {fewest} |");
    let walks = each(&|all| {
        let steps = |word: &str| summary(of(all, word), |path| path.steps_to(WITHIN)).0;
        let ratio = steps("q-learning") / steps("rrl");
        format!("{ratio:.1} x{}", miss(ratio > 8.0))
    });
    let _ = writeln!(text, "| `rrl`: more than 8 times fewer steps than `q-learning` | {walks} |\n");
}

fn noise(text: &mut String, models: &[Model]) {
    text.push_str(
        "## Noise\n\nSome configurations were measured a second time, minutes later. The best of 720 trials is also the luckiest of those that are as good, so \
         \"within 1 %\" asks for more than anyone can notice wherever two trials of one configuration differ by more than that.\n\n\
         | model | repeated | median difference of rows/s | 90th percentile | within 1 % of the best of 720 | within 5 % |\n|---|--:|--:|--:|--:|--:|\n",
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
            sizes.len(),
            at(0.5),
            at(0.9),
            near(0.01),
            near(0.05)
        );
    }
    text.push_str("\nThe last two columns count configurations by rows/s, without an objective.\n\n");
}

fn table(text: &mut String, model: &Model, all: &[Found], anywhere: &[Path]) {
    let _ = write!(
        text,
        "## {}\n\nTrials to within 1 % (and 5 %) of the best of 720, and what is missing to it after some trials: means over the objectives and seeds.\n\n\
         | search | paths | mean trials | median | 90th percentile | never | mean trials to 5 % | missing after 10 | 20 | 30 |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        model.name
    );
    let named = all.iter().map(|(word, paths)| (format!("`{word}`"), paths.as_slice()));
    for (name, paths) in named.chain([("`tessera`, first trial anywhere".to_owned(), anywhere)]) {
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
        "## Constants of `tessera`\n\nMean trials to within 1 % with other values of each constant.\n\n| constant | value |",
    );
    for model in models {
        let _ = write!(text, " {} |", model.name);
    }
    let _ = write!(text, " mean |\n|---|--:|{}--:|\n", "--:|".repeat(models.len()));
    let usual = Constants::default();
    let mut line = |name: &str, value: String, constants: Constants| {
        let means: Vec<f64> = models
            .iter()
            .map(|model| summary(&ours(space, model, constants), |path| path.trials_to(WITHIN)).0)
            .collect();
        let _ = write!(text, "| {name} | {value} |");
        for mean in &means {
            let _ = write!(text, " {mean:.1} |");
        }
        let _ = writeln!(text, " {:.1} |", means.iter().sum::<f64>() / means.len().max(1) as f64);
    };
    line("as they are", String::new(), usual);
    type Set = fn(&mut Constants) -> &mut f64;
    let each: [(&str, Set); 8] = [
        ("deviation of a value of a knob", |of| &mut of.knob),
        ("deviation of a setup", |of| &mut of.setup),
        ("deviation of the shared curve", |of| &mut of.shared_curve),
        ("deviation of the curve of a setup", |of| &mut of.own_curve),
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
    for (name, set) in each.into_iter().take(4) {
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
