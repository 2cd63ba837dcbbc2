//! Traffic of the study: as recorded, where the recordings are, and made up, which is always there.

use workload::{Arrivals, Workload};

use super::StudyError;
use super::fleet::Fleet;

/// Nanoseconds of a minute.
const MINUTE: u64 = 60_000_000_000;

/// Traffic for a fleet.
#[derive(Clone, Debug)]
pub struct Trace {
    /// What it is called; the name of its plot's file.
    pub name: &'static str,
    /// What it is, for people.
    pub about: &'static str,
    /// Requests, one model for each of the fleet in order, scaled to the devices.
    pub workload: Workload,
}

/// Where a recording is, below the folder of data, and what it is.
struct Recording {
    name: &'static str,
    about: &'static str,
    file: &'static str,
    format: &'static str,
    options: &'static str,
    duration: &'static str,
}

const RECORDINGS: &[Recording] = &[
    Recording {
        name: "azure-functions-2019",
        about: "Invocations a minute of 446 functions over four hours, dealt to the twelve models in turn (AlpaServe's \
                stripe), Poisson within each minute: two thirds of the traffic go to one model, some models have next \
                to none. The rate jumps with every minute.",
        file: "traces/azure-functions-2019/invocations_500fn_min480-719.csv",
        format: "azure-functions-minute",
        options: "functions = \"stripe\", repeat = false",
        duration: "240m",
    },
    Recording {
        name: "azure-functions-2019-cv4",
        about: "The same with gamma gaps of a coefficient of variation of 4, which is AlpaServe's choice: the trace \
                says nothing about gaps, and such gaps cannot be foreseen.",
        file: "traces/azure-functions-2019/invocations_500fn_min480-719.csv",
        format: "azure-functions-minute",
        options: "functions = \"stripe\", cv_scale = 4.0, repeat = false",
        duration: "240m",
    },
    Recording {
        name: "twitter",
        about: "Requests a second over a day, the same for each of the twelve models: a slow tide, and from second to \
                second a jitter of 15 % that nobody can foresee.",
        file: "traces/no-licence/twitter/day00_per_second_counts.txt",
        format: "counts-per-second",
        options: "repeat = false",
        duration: "24h",
    },
    Recording {
        name: "azure-llm-conversation",
        about: "Requests of a chat service over most of an hour, as a rate a minute: jumps of 10 % with every minute.",
        file: "traces/azure-llm-2023/AzureLLMInferenceTrace_conv.csv",
        format: "azure-llm",
        options: "",
        duration: "58m",
    },
    Recording {
        name: "azure-llm-code",
        about: "Requests of a code completion service over most of an hour, as a rate a minute: the rate doubles or \
                halves with every minute, four times the mean at the highest.",
        file: "traces/azure-llm-2023/AzureLLMInferenceTrace_code.csv",
        format: "azure-llm",
        options: "",
        duration: "56m",
    },
];

const SYNTHETIC: &[(&str, &str, &str)] = &[
    (
        "day",
        "A day in forty minutes: Poisson arrivals whose rate swings between a fifth of its peak and the peak.",
        "{ process = \"diurnal\", period = \"40m\", low = 0.2 }",
    ),
    (
        "bursts",
        "Poisson arrivals at a rate that doubles for half a minute every other minute or so, at random.",
        "{ process = \"mmpp\", rates = [1.0, 2.0], stay = [\"90s\", \"30s\"] }",
    ),
    (
        "flash",
        "A steady rate that is three times as high for two minutes, from one moment to the next.",
        "{ process = \"flash\", at = \"20m\", lasts = \"2m\", factor = 3.0 }",
    ),
];

fn text(name: &str, duration: &str, models: usize, rest: &str) -> String {
    format!(
        "name = \"{name}\"\nduration = \"{duration}\"\nseed = 1\n[models.m]\ncount = {models}\nslo = \"1s\"\n{rest}\n"
    )
}

/// Traffic so dense that it fills so many devices on average.
fn scaled(workload: &Workload, fleet: &Fleet, devices: f64) -> Result<Workload, StudyError> {
    let seconds = match workload.extent {
        workload::Extent::Time(time) => time as f64 / 1e9,
        workload::Extent::Requests(_) => 1.0,
    };
    let rates: Vec<f64> = workload
        .models
        .iter()
        .map(|model| model.expected_requests((seconds * 1e9) as u64) / seconds)
        .collect();
    Ok(workload.scaled(devices / fleet.need(&rates))?)
}

/// Made-up traffic, which fills so many devices of the fleet on average.
///
/// # Errors
/// [`StudyError::Workload`] where so much traffic cannot be offered.
pub fn synthetic(fleet: &Fleet, devices: f64) -> Result<Vec<Trace>, StudyError> {
    let models = fleet.models().len();
    let of = |(name, about, arrivals): &(&'static str, &'static str, &str)| {
        let text = text(name, "40m", models, &format!("rate = 1.0\narrivals = {arrivals}"));
        let workload = Workload::parse(&text, &mut |name: &str| Err(format!("no file {name}")))?;
        Ok(Trace { name, about, workload: scaled(&workload, fleet, devices)? })
    };
    SYNTHETIC.iter().map(of).collect()
}

/// Recorded traffic, which fills so many devices of the fleet on average. `files` gives the text of a recording by
/// its path below the folder of data; those that it does not have are left out.
///
/// # Errors
/// [`StudyError::Workload`] where a recording makes no sense.
pub fn recorded(
    fleet: &Fleet,
    devices: f64,
    files: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<Vec<Trace>, StudyError> {
    let mut traces = Vec::new();
    for recording in RECORDINGS {
        let Ok(content) = files(recording.file) else { continue };
        let workload = match recording.format {
            "azure-llm" => minutes(recording, fleet, &content)?,
            _ => parsed(recording, fleet, recording.format, recording.options, &content)?,
        };
        let workload = scaled(&workload, fleet, devices)?;
        traces.push(Trace { name: recording.name, about: recording.about, workload });
    }
    Ok(traces)
}

fn parsed(
    recording: &Recording,
    fleet: &Fleet,
    format: &str,
    options: &str,
    content: &str,
) -> Result<Workload, StudyError> {
    let options = if options.is_empty() { String::new() } else { format!(", {options}") };
    let arrivals = format!(
        "arrivals = {{ process = \"trace\", format = \"{format}\", file = \"{}\"{options} }}",
        recording.file
    );
    let text = text(recording.name, recording.duration, fleet.models().len(), &arrivals);
    Ok(Workload::parse(&text, &mut |_: &str| Ok(content.to_owned()))?)
}

/// Requests counted by the minute, each minute at the rate of its count.
fn minutes(recording: &Recording, fleet: &Fleet, content: &str) -> Result<Workload, StudyError> {
    let listed = parsed(recording, fleet, "azure-llm", "repeat = false", content)?;
    let mut counts: Vec<u32> = Vec::new();
    for offered in Arrivals::new(&listed) {
        let minute = usize::try_from(offered.at / MINUTE).unwrap_or(usize::MAX);
        counts.resize(counts.len().max(minute.saturating_add(1)), 0);
        counts.get_mut(minute).into_iter().for_each(|count| *count += 1);
    }
    let seconds = counts.iter().flat_map(|count| std::iter::repeat_n(*count, 60));
    let text: String = seconds.map(|count| format!("{count}\n")).collect();
    parsed(recording, fleet, "counts-per-second", "repeat = false", &text)
}
