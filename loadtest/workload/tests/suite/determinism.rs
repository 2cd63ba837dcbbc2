//! The same file and seed give the same requests; one model never disturbs another.

use crate::support::{PROFILE, of_model, one, parse, times};
use sha2::{Digest as _, Sha256};
use workload::{Arrivals, Extent, Workload};

const README: &str = include_str!("../../README.md");

const FILES: [(&str, &str); 5] = [
    ("profiles/search.csv", "batch,milliseconds\n1,6.1\n8,13.4\n32,40.25\n"),
    (
        "traces/functions.csv",
        "HashOwner,HashApp,HashFunction,Trigger,1,2\no,a,f,http,90000,60000\no,a,g,queue,30000,0\no,a,h,timer,0,900000\n",
    ),
    (
        "traces/llm.csv",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n2023-11-16 18:17:06.5000000,110,27\n",
    ),
    ("traces/counts.txt", "52\n55\n48\n0\n57\n"),
    ("traces/own.csv", "seconds,model\n0.25,own\n1.5,own\n1.5,own\n9,own\n"),
];

fn example() -> Workload {
    let text = README.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    parse(text, &FILES)
}

fn hash(workload: &Workload, requests: usize) -> String {
    let mut hash = Sha256::new();
    for offered in Arrivals::new(workload).take(requests) {
        hash.update(offered.at.to_le_bytes());
        hash.update(offered.model.to_le_bytes());
        hash.update(offered.tenant.to_le_bytes());
        hash.update(offered.rows.to_le_bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_readme_example_is_read_as_it_says() {
    let workload = example();
    assert_eq!((workload.name.as_str(), workload.seed), ("every-process", 1));
    assert_eq!(workload.extent, Extent::Time(60 * crate::support::SECOND));
    assert_eq!((workload.lanes.count, workload.lanes.changes.len()), (8, 2));
    let tenants: Vec<_> =
        workload.tenants.iter().map(|tenant| (tenant.name.as_str(), tenant.weight)).collect();
    assert_eq!(tenants, [("default", 1.0), ("free", 1.0), ("gold", 3.0)]);
    let names: Vec<_> = workload.models.iter().map(|model| model.name.as_str()).collect();
    let mut expected: Vec<String> = (0..10).map(|copy| format!("resnet-{copy}")).collect();
    let rest = [
        "camera",
        "search",
        "chat",
        "shop",
        "news",
        "nightly",
        "function-0",
        "function-1",
        "llm",
        "feed",
        "own",
    ];
    expected.extend(rest.map(str::to_owned));
    assert_eq!(names, expected);
    let search = workload.models.iter().find(|model| model.name == "search").unwrap();
    let profile = search.profiled().unwrap();
    assert_eq!((profile.time(8), profile.max_batch(), search.priority), (13_400_000, 32, 1));
    assert!((search.rows.mean() - 1.3).abs() < 1e-12);
    let processes: Vec<_> = workload.models.iter().skip(9).map(workload::Model::process).collect();
    let words = [
        "poisson", "uniform", "gamma", "mmpp", "diurnal", "flash", "poisson", "trace", "trace", "trace",
        "trace", "trace",
    ];
    assert_eq!(processes, words);
    let count = Arrivals::new(&workload).count() as f64;
    println!("{count} requests, {:.1} expected a second", workload.mean_rate());
    assert!((count / 60.0 / workload.mean_rate() - 1.0).abs() < 0.05);
}

#[test]
fn the_readme_example_offers_the_same_requests_for_ever() {
    let found = hash(&example(), 10_000);
    assert_eq!(found, "3ccc71fa9aba87ea22c9bf0ebd229341951ffff47aea88eb7897d9984fedfb41");
    assert_eq!(found, hash(&example(), 10_000));
    assert_ne!(found, hash(&example().with_seed(2), 10_000));
}

#[test]
fn a_model_keeps_its_requests_whatever_else_is_offered() {
    let model =
        |name: &str, rest: &str| format!("[models.{name}]\nslo = \"1s\"\n{PROFILE}\nrate = 50.0\n{rest}\n");
    let head = "name = \"x\"\nseed = 3\nduration = \"20s\"\n";
    let (b, other) = (model("b", "rows = [[1, 1], [2, 1]]"), model("a", "count = 3"));
    let alone = parse(&format!("{head}{b}"), &[]);
    let before = parse(&format!("{head}{other}{b}"), &[]);
    let strip = |workload: &Workload| -> Vec<_> {
        of_model(workload, "b").iter().map(|offered| (offered.at, offered.rows)).collect()
    };
    assert_eq!(strip(&alone), strip(&before));
    assert!(strip(&alone).len() > 800);
    let other_rows = parse(&format!("{head}{}", model("b", "rows = 2")), &[]);
    assert_eq!(times(&alone), times(&other_rows), "the mix of rows does not move arrivals");
    let copies: Vec<_> = (0..3)
        .map(|copy| of_model(&before, &format!("a-{copy}")))
        .map(|all| all.iter().map(|o| o.at).collect::<Vec<_>>())
        .collect();
    assert!(copies.iter().enumerate().all(|(i, copy)| copies.iter().skip(i + 1).all(|other| copy != other)));
}

#[test]
fn twice_the_rate_is_twice_the_requests() {
    let count = |workload: &Workload| Arrivals::new(workload).count() as f64;
    let workload = parse(
        &README
            .split("```toml\n")
            .nth(1)
            .unwrap()
            .split("```")
            .next()
            .unwrap()
            .replace(", repeat = false", ""),
        &FILES,
    );
    let (once, twice) = (workload, 2.0);
    let scaled = once.scaled(twice).unwrap();
    assert!(
        (scaled.mean_rate() / once.mean_rate() - 2.0).abs() < 0.02,
        "{} {}",
        scaled.mean_rate(),
        once.mean_rate()
    );
    assert!((count(&scaled) / count(&once) - 2.0).abs() < 0.1, "{} {}", count(&scaled), count(&once));
    for (model, expected) in once.models.iter().zip(&scaled.models) {
        assert!((expected.mean_rate() / model.mean_rate() - 2.0).abs() < 1e-9, "{}", model.name);
    }
    let poisson = one("20s", "rate = 100.0", &[]);
    let fast = times(&poisson.scaled(2.0).unwrap());
    let halved = times(&poisson).into_iter().map(|at| at / 2);
    assert!(
        halved.zip(&fast).all(|(slow, fast)| slow.abs_diff(*fast) <= 1),
        "the same draws in half the time"
    );
}

#[test]
fn factors_that_are_not_positive_or_too_large_are_refused() {
    let workload = one("20s", "rate = 100.0", &[]);
    for factor in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
        assert!(workload.scaled(factor).is_err(), "{factor}");
    }
}

#[test]
fn it_ends_at_the_count_or_at_the_time() {
    let text = |end: &str| {
        format!("name = \"x\"\n{end}\n[models.m]\ncount = 3\nslo = \"1s\"\n{PROFILE}\nrate = 50.0\n")
    };
    let by_count = parse(&text("requests = 12345"), &[]);
    assert_eq!(Arrivals::new(&by_count).count(), 12_345);
    let by_time = parse(&text("duration = \"10s\""), &[]);
    let found = times(&by_time);
    assert!(found.is_sorted() && found.iter().all(|at| *at < 10 * crate::support::SECOND));
}

#[test]
fn shares_of_rows_and_tenants_are_kept() {
    let text = "rate = 1000.0\nrows = [[1, 9.0], [4, 1.0]]\ntenants = { gold = 3.0, free = 1.0 }";
    let workload = one("100s", text, &[]);
    let all: Vec<_> = Arrivals::new(&workload).collect();
    let share = |count: usize| count as f64 / all.len() as f64;
    let four = share(all.iter().filter(|offered| offered.rows == 4).count());
    assert!((four - 0.1).abs() < 0.005, "{four}");
    let gold = workload.tenants.iter().position(|tenant| tenant.name == "gold").unwrap();
    let gold = share(all.iter().filter(|offered| usize::from(offered.tenant) == gold).count());
    assert!((gold - 0.75).abs() < 0.006, "{gold}");
}

#[test]
fn ten_thousand_models_are_merged_in_order() {
    let text = format!(
        "name = \"x\"\nrequests = 200000\n[models.m]\ncount = 10000\nslo = \"1s\"\n{PROFILE}\nrate = 1.0\n"
    );
    let all: Vec<_> = Arrivals::new(&parse(&text, &[])).collect();
    assert!(all.is_sorted_by_key(|offered| (offered.at, offered.model)));
    let seen: std::collections::BTreeSet<u32> = all.iter().map(|offered| offered.model).collect();
    assert_eq!((all.len(), seen.len()), (200_000, 10_000));
}
