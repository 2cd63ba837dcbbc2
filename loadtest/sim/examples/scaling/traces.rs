//! The traffic of the study: recorded traces, shortened, and synthetic ones, which always exist.

use workload::{Arrivals, Workload};

use super::Failed;

/// Nanoseconds of a minute.
const MINUTE: u64 = 60_000_000_000;

/// Traffic of the twelve models.
pub struct Trace {
    /// Also the name of its plots.
    pub name: &'static str,
    /// What it is, for readers of the page.
    pub about: &'static str,
    pub duration: &'static str,
    /// Keys of a model of the workload file.
    pub arrivals: String,
    /// Text of the file that `arrivals` names.
    pub recording: String,
}

const FUNCTIONS: &str = "traces/azure-functions-2019/invocations_500fn_min480-719.csv";
const TWITTER: &str = "traces/no-licence/twitter/day00_per_second_counts.txt";
const CHAT: &str = "traces/azure-llm-2023/AzureLLMInferenceTrace_conv.csv";
const CODE: &str = "traces/azure-llm-2023/AzureLLMInferenceTrace_code.csv";

/// Name, description, and arrivals at a mean rate that does not matter, because all traces are scaled.
const SYNTHETIC: [(&str, &str, &str); 3] = [
    (
        "day",
        "A day in 20 minutes: Poisson arrivals whose rate swings between a fifth of its peak and the peak.",
        r#"{ process = "diurnal", period = "20m", low = 0.2 }"#,
    ),
    (
        "bursts",
        "Poisson arrivals at a rate that doubles for 30 s every two minutes or so, at random.",
        r#"{ process = "mmpp", rates = [1.0, 2.0], stay = ["90s", "30s"] }"#,
    ),
    (
        "flash",
        "A steady rate that suddenly triples for two minutes.",
        r#"{ process = "flash", at = "10m", lasts = "2m", factor = 3.0 }"#,
    ),
];

/// All traces whose recording `read` returns, and the synthetic ones.
pub fn all(read: &mut dyn FnMut(&str) -> Option<String>) -> Result<Vec<Trace>, Failed> {
    let mut traces = Vec::new();
    if let Some(recording) = read(FUNCTIONS) {
        let about = "The first 20 minutes of 446 functions of Azure, counted by the minute. Each function belongs to one of \
                     the twelve models, round-robin (AlpaServe's stripe). Arrivals are Poisson within each minute. Two thirds \
                     of the traffic go to one model, and the rate jumps with every minute.";
        traces.push(functions("azure-functions-2019", about, "", recording.clone()));
        let about = "The same with gamma-distributed gaps between requests. Their coefficient of variation is 4, as in \
                     AlpaServe. The trace itself contains only counts.";
        traces.push(functions("azure-functions-2019-cv4", about, ", cv_scale = 4.0", recording));
    }
    if let Some(recording) = read(TWITTER) {
        let minutes: String = recording.lines().step_by(60).map(|count| format!("{count}\n")).collect();
        let about = "A day in 24 minutes, the same for each of the twelve models: every 60th count of requests per second. The \
                     rate follows the time of day, and changes by 15 % at random from second to second.";
        traces.push(counts("twitter", about, "24m", minutes));
    }
    if let Some(recording) = read(CHAT) {
        let about = "The first 20 minutes of a chat service of Azure, at the rate of each minute: it changes by about 10 % with \
                     every minute.";
        traces.push(counts("azure-llm-conversation", about, "20m", per_second(&recording)?));
    }
    if let Some(recording) = read(CODE) {
        let about = "The first 20 minutes of a code completion service of Azure, at the rate of each minute: it doubles or \
                     halves from minute to minute.";
        traces.push(counts("azure-llm-code", about, "20m", per_second(&recording)?));
    }
    traces.extend(SYNTHETIC.map(|(name, about, arrivals)| Trace {
        name,
        about,
        duration: "20m",
        arrivals: format!("rate = 1.0\narrivals = {arrivals}"),
        recording: String::new(),
    }));
    Ok(traces)
}

fn functions(name: &'static str, about: &'static str, options: &str, recording: String) -> Trace {
    let arrivals = format!(
        r#"arrivals = {{ process = "trace", format = "azure-functions-minute", file = "recording", functions = "stripe", repeat = false{options} }}"#
    );
    Trace { name, about, duration: "20m", arrivals, recording }
}

fn counts(name: &'static str, about: &'static str, duration: &'static str, recording: String) -> Trace {
    let arrivals = r#"arrivals = { process = "trace", format = "counts-per-second", file = "recording", repeat = false }"#;
    Trace { name, about, duration, arrivals: arrivals.to_owned(), recording }
}

/// Listed requests as counts per second: each second has the count of its whole minute.
fn per_second(recording: &str) -> Result<String, Failed> {
    let text = r#"
name = "listed"
duration = "20m"
[models.m]
slo = "1s"
arrivals = { process = "trace", format = "azure-llm", file = "recording", repeat = false }
"#;
    let listed = Workload::parse(text, &mut |_| Ok(recording.to_owned()))?;
    let mut counts = [0_u32; 20];
    for offered in Arrivals::new(&listed) {
        let minute = usize::try_from(offered.at / MINUTE)?;
        counts.get_mut(minute).into_iter().for_each(|count| *count += 1);
    }
    Ok(counts.into_iter().flat_map(|count| std::iter::repeat_n(format!("{count}\n"), 60)).collect())
}
