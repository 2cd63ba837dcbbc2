//! The `rate` and `arrivals` of models.

use std::collections::BTreeMap;
use std::sync::Arc;

use units::nearest;

use super::Name;
use crate::document::{ArrivalsSection, ModelSection};
use crate::files::Texts;
use crate::limits::DURATION_MAX;
use crate::process::{Listing, Process, State, Steps, mean_rate};
use crate::spans::{SECOND, Span, show};
use crate::trace::functions::Chosen;
use crate::trace::timestamps::{Claims, Timestamps};
use crate::trace::{counts, deal, functions, llm, timestamps};
use units::Fault as WorkloadError;
use units::Lines;

/// Requests a second that one model may offer.
const RATE_MAX: f64 = 1e9;

/// Shortest mean time in a state, so that a long silence is passed in few steps.
const STAY_MIN: u64 = 100_000;

const MINUTE: u64 = 60 * SECOND;

/// Each process with its own keys.
const PROCESSES: [(&str, &[&str]); 6] = [
    ("poisson", &[]),
    ("uniform", &[]),
    ("gamma", &["cv"]),
    ("mmpp", &["rates", "stay"]),
    ("diurnal", &["period", "low"]),
    ("flash", &["at", "lasts", "factor"]),
];

/// Each format of a trace with its own keys.
const FORMATS: [(&str, &[&str]); 4] = [
    (
        "azure-functions-minute",
        &["format", "file", "repeat", "function", "functions", "cv_scale", "rate_scale", "window"],
    ),
    ("azure-llm", &["format", "file", "repeat", "time_scale"]),
    ("counts-per-second", &["format", "file", "repeat", "rate_scale"]),
    ("timestamps", &["format", "file", "repeat", "time_scale"]),
];

/// A model's section with its place in the file and in the list of models.
struct Place<'a> {
    group: &'a str,
    section: &'a ModelSection,
    copies: usize,
    /// Number of its first copy.
    first: usize,
    /// The keys of its `arrivals`, but for `process`.
    keys: Vec<&'a str>,
}

impl Place<'_> {
    fn arrivals(&self) -> &ArrivalsSection {
        &self.section.arrivals
    }

    fn field(&self, key: &str) -> String {
        format!("{}.{}.arrivals.{key}", self.section.table(), self.group)
    }

    fn wrong(&self, key: &str, problem: impl Into<String>) -> WorkloadError {
        WorkloadError::new(self.field(key), problem)
    }

    fn required<T: Clone>(&self, key: &str, value: &Option<T>) -> Result<T, WorkloadError> {
        value.clone().ok_or_else(|| self.wrong(key, "expected a value: this key has no default"))
    }

    /// A number above zero, at most `max`.
    fn positive(&self, key: &str, value: f64, max: f64) -> Result<f64, WorkloadError> {
        if value > 0.0 && value <= max {
            return Ok(value);
        }
        Err(self.wrong(key, format!("expected more than 0 and at most {max}, got {value}")))
    }

    /// Refuses keys of other processes, which would do nothing.
    fn check_keys(&self, kind: &str, word: &str, known: &[(&str, &[&str])]) -> Result<(), WorkloadError> {
        let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
        let Some((_, keys)) = known.iter().find(|(known, _)| *known == word) else {
            let hint = nearest(word, &words).map(|near| format!(", did you mean `{near}`?"));
            let problem =
                format!("expected one of {}, got `{word}`{}", words.join(", "), hint.unwrap_or_default());
            return Err(self.wrong(kind, problem));
        };
        match self.keys.iter().find(|key| !keys.contains(key)) {
            Some(key) => Err(self.wrong(key, format!("{kind} `{word}` has no such key"))),
            None => Ok(()),
        }
    }
}

/// The processes of all models, by number.
pub(super) fn read(
    sections: &[(&String, &ModelSection)],
    names: &[Name],
    lines: &Lines,
    files: &mut Texts<'_>,
) -> Result<Vec<Process>, WorkloadError> {
    let mut first = 0;
    let mut places = Vec::new();
    for &(group, section) in sections {
        let copies = usize::try_from(section.count).unwrap_or(0);
        let keys =
            lines.keys_in(&format!("{}.{group}.arrivals", section.table())).filter(|key| *key != "process");
        places.push(Place { group, section, copies, first, keys: keys.collect() });
        first += copies;
    }
    let mut listed: BTreeMap<String, Timestamps> = BTreeMap::new();
    let mut processes = Vec::with_capacity(first);
    for place in &places {
        if place.arrivals().process.as_deref() == Some("trace") {
            processes.extend(read_trace(place, &places, names, &mut listed, files)?);
        } else {
            let process = read_synthetic(place)?;
            processes.extend(std::iter::repeat_n(process, place.copies));
        }
    }
    Ok(processes)
}

fn read_synthetic(place: &Place<'_>) -> Result<Process, WorkloadError> {
    let section = place.arrivals();
    let word = section.process.as_deref().unwrap_or("poisson");
    let all: Vec<(&str, &[&str])> = PROCESSES.iter().copied().chain([("trace", &[] as &[&str])]).collect();
    place.check_keys("process", word, &all)?;
    if place.section.has_no_traffic() {
        return Ok(Process::Silent);
    }
    let at_rate = format!("{}.{}.rate", place.section.table(), place.group);
    let rate = place
        .section
        .rate
        .ok_or_else(|| WorkloadError::new(&at_rate, "expected a value: this key has no default"))?;
    if !(rate > 0.0 && rate <= RATE_MAX) {
        let problem = format!("expected more than 0 and at most {RATE_MAX} requests a second, got {rate}");
        return Err(WorkloadError::new(at_rate, problem));
    }
    let rate = rate / SECOND as f64;
    match word {
        "uniform" => Ok(Process::Uniform { rate }),
        "gamma" => {
            let cv = place.required("cv", &section.cv)?;
            Ok(Process::Gamma { rate, cv: check_cv(place, "cv", cv)? })
        }
        "mmpp" => read_modulated(place, rate),
        "diurnal" => {
            let (period, low) =
                (place.required("period", &section.period)?, place.required("low", &section.low)?);
            if !(1..=DURATION_MAX).contains(&period.0) {
                return Err(place.wrong("period", format!("expected up to 400 days, got {}", show(period.0))));
            }
            if !(0.0..=1.0).contains(&low) {
                return Err(place.wrong("low", format!("expected 0 to 1, got {low}")));
            }
            Ok(Process::Diurnal { peak: rate / f64::midpoint(1.0, low), low, period: period.0 })
        }
        "flash" => {
            let (at, lasts) = (place.required("at", &section.at)?, place.required("lasts", &section.lasts)?);
            let factor = place.positive("factor", place.required("factor", &section.factor)?, 1e6)?;
            Ok(Process::Flash { rate, at: at.0, lasts: lasts.0, factor })
        }
        _ => Ok(Process::Poisson { rate }),
    }
}

fn check_cv(place: &Place<'_>, key: &str, cv: f64) -> Result<f64, WorkloadError> {
    if (0.01..=100.0).contains(&cv) {
        return Ok(cv);
    }
    Err(place.wrong(key, format!("expected 0.01 to 100, got {cv}")))
}

fn read_modulated(place: &Place<'_>, rate: f64) -> Result<Process, WorkloadError> {
    let section = place.arrivals();
    let (rates, stay) = (place.required("rates", &section.rates)?, place.required("stay", &section.stay)?);
    if rates.len() != stay.len() || !(2..=64).contains(&rates.len()) {
        let problem = format!(
            "expected 2 to 64 rates and as many times to stay, got {} and {}",
            rates.len(),
            stay.len()
        );
        return Err(place.wrong("rates", problem));
    }
    if let Some(rate) = rates.iter().find(|rate| !(0.0..=RATE_MAX).contains(*rate)) {
        return Err(place.wrong("rates", format!("expected 0 or more, got {rate}")));
    }
    if let Some(Span(stay)) = stay.iter().find(|stay| !(STAY_MIN..=DURATION_MAX).contains(&stay.0)) {
        return Err(place.wrong("stay", format!("expected 100us to 400d, got {}", show(*stay))));
    }
    let states = rates.iter().zip(&stay).map(|(&rate, stay)| State { rate, stay: stay.0 as f64 });
    let states: Vec<State> = states.collect();
    let mean = mean_rate(&states);
    if mean <= 0.0 {
        return Err(place.wrong("rates", "expected at least one rate above 0"));
    }
    let normalised = states.iter().map(|state| State { rate: state.rate / mean, ..*state });
    Ok(Process::Modulated { states: normalised.collect(), scale: rate })
}

/// The processes of the copies of a model that follows a trace.
fn read_trace(
    place: &Place<'_>,
    places: &[Place<'_>],
    names: &[Name],
    listed: &mut BTreeMap<String, Timestamps>,
    files: &mut Texts<'_>,
) -> Result<Vec<Process>, WorkloadError> {
    if place.section.rate.is_some() {
        let problem =
            "a trace has its own rate: leave `rate` out, or set `rate_scale` or `time_scale` in `arrivals`";
        return Err(WorkloadError::new(format!("models.{}.rate", place.group), problem));
    }
    let section = place.arrivals();
    let (format, file) = (place.required("format", &section.format)?, place.required("file", &section.file)?);
    place.check_keys("format", &format, &FORMATS)?;
    let text = files(&file).map_err(|why| place.wrong("file", format!("cannot read `{file}`: {why}")))?;
    let fault = |(line, problem): (Option<u32>, String)| place.wrong("file", problem).inside(&file, line);
    let repeat = section.repeat.unwrap_or(true);
    let scale = place.positive("rate_scale", section.rate_scale.unwrap_or(1.0), 1e6)?;
    let speed = place.positive("time_scale", section.time_scale.unwrap_or(1.0), 1e6)?;
    let replay = |listings: Vec<Listing>| replayed(place, listings, speed);
    match format.as_str() {
        "azure-functions-minute" => {
            let window = read_window(place)?;
            let cv = check_cv(place, "cv_scale", section.cv_scale.unwrap_or(1.0))?;
            let minutes = functions::read(&text, read_chosen(place)?, window).map_err(fault)?;
            let stepped =
                minutes.into_iter().map(|minutes| stepped(minutes, MINUTE, repeat, Some(cv), scale));
            Ok(stepped.collect::<Vec<_>>().into_iter().cycle().take(place.copies).collect())
        }
        "counts-per-second" => {
            let counts = counts::read(&text).map_err(fault)?;
            let process = stepped(counts.into_iter().map(f64::from).collect(), SECOND, repeat, None, scale);
            Ok(vec![process; place.copies])
        }
        "azure-llm" => {
            let (times, period) = llm::read(&text).map_err(fault)?;
            replay(deal(&times, place.copies, period, repeat))
        }
        _ => {
            if !listed.contains_key(&file) {
                let read = timestamps::read(&text, &claims(&file, places, names)).map_err(fault)?;
                listed.insert(file.clone(), read);
            }
            let trace = listed.get(&file);
            let period = trace.map_or(1, |trace| trace.period);
            let times = |model| trace.and_then(|trace| trace.times.get(&model)).cloned().unwrap_or_default();
            let models = place.first..place.first + place.copies;
            replay(models.map(|model| Listing { times: times(model), period, repeat }).collect())
        }
    }
}

fn replayed(place: &Place<'_>, listings: Vec<Listing>, speed: f64) -> Result<Vec<Process>, WorkloadError> {
    let replayed = listings.into_iter().map(|listing| {
        if listing.times.is_empty() {
            return Err(
                place.wrong("file", "the trace has no request for this model or for one of its copies")
            );
        }
        Ok(Process::Listed { listing: Arc::new(listing), speed })
    });
    replayed.collect()
}

fn stepped(counts: Vec<f64>, step: u64, repeat: bool, cv: Option<f64>, scale: f64) -> Process {
    let rates = counts.into_iter().map(|count| count / step as f64).collect();
    Process::Stepped { steps: Arc::new(Steps { rates, step, repeat }), cv, scale }
}

/// Window in minutes.
fn read_window(place: &Place<'_>) -> Result<usize, WorkloadError> {
    let window = place.arrivals().window.map_or(MINUTE, |window| window.0);
    if window == 0 || !window.is_multiple_of(MINUTE) || window > DURATION_MAX {
        return Err(place.wrong("window", format!("expected whole minutes like 60s, got {}", show(window))));
    }
    Ok(usize::try_from(window / MINUTE).unwrap_or(usize::MAX))
}

fn read_chosen(place: &Place<'_>) -> Result<Chosen, WorkloadError> {
    match (place.arrivals().function, place.arrivals().functions.as_deref()) {
        (Some(function), None) => Ok(Chosen::One(function)),
        (None, Some("stripe")) => Ok(Chosen::Stripe(place.copies)),
        (None, Some(other)) => Err(place.wrong("functions", format!("expected \"stripe\", got `{other}`"))),
        _ => Err(place.wrong("function", "expected one of `function = 1` and `functions = \"stripe\"`")),
    }
}

/// Which models take which rows of a file: a copy those of its name, all copies in turn those of the model's name.
fn claims(file: &str, places: &[Place<'_>], names: &[Name]) -> Claims {
    let mut claims = Claims::new();
    let readers = places.iter().filter(|place| {
        let section = place.arrivals();
        section.format.as_deref() == Some("timestamps") && section.file.as_deref() == Some(file)
    });
    for place in readers {
        for (model, name) in names.iter().enumerate().skip(place.first).take(place.copies) {
            claims.entry(name.name.clone()).or_default().push(model);
            if name.name != name.group {
                claims.entry(name.group.clone()).or_default().push(model);
            }
        }
    }
    claims
}
