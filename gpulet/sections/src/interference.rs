//! Creates an interference model from an `interference` section.

use gpulet_core::interference::{Contention, DevicePower, Gpulet, Igniter, Interference, NoInterference};
use gpulet_core::profile::Profile;
use units::{Fault, nearest};

use crate::{InterferenceSection, PowerSection};

/// Names of interference models in files. The learned model is not among them: it needs measurements.
const WORDS: [&str; 4] = ["none", "gpulet", "contention", "igniter"];
/// Largest absolute value of a parameter.
const FIGURE_MAX: f64 = 1e12;

/// Creates the model with its parameters. `field` is the path of the section.
///
/// # Errors
/// Names the invalid key and the expected value, without file and line.
pub fn interference(field: &str, section: &InterferenceSection) -> Result<Interference, Fault> {
    let section = Section { field, section };
    let power = section.powers()?;
    match section.section.model.as_str() {
        "none" => {
            section.unused("coefficients", section.section.coefficients.is_empty())?;
            section.unused("power", power.is_empty())?;
            Ok(Interference::NoInterference(NoInterference))
        }
        "gpulet" => {
            section.unused("power", power.is_empty())?;
            Ok(Interference::Gpulet(Gpulet { coefficients: section.coefficients()? }))
        }
        "contention" => {
            let [(_, power)] = power.as_slice() else {
                let problem = format!(
                    "model `contention` describes one device type: expected one table like [{field}.power.v100], got {}",
                    power.len()
                );
                return section.fault("power", problem);
            };
            Ok(Interference::Contention(Contention { coefficients: section.coefficients()?, power: *power }))
        }
        "igniter" => {
            section.unused("coefficients", section.section.coefficients.is_empty())?;
            Ok(Interference::Igniter(Igniter { devices: power.into_iter().collect() }))
        }
        word => {
            let hint = match nearest(word, &WORDS) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("expected one of {}", WORDS.join(", ")),
            };
            Err(fault(field, format!("unknown model `{word}`, {hint}")))
        }
    }
}

/// Creates the model for one device type. Fails if the model needs data that a profile for that type lacks.
///
/// # Errors
/// Names the invalid key, or what a profile lacks, without file and line.
pub fn interference_on<'a>(
    field: &str,
    section: &InterferenceSection,
    device_type: &str,
    profiles: impl IntoIterator<Item = &'a Profile>,
) -> Result<Interference, Fault> {
    let found = interference(field, section)?;
    for profile in profiles.into_iter().filter(|profile| profile.device() == device_type) {
        if let Some(lacking) = found.lacks(profile) {
            let (word, model) = (found.name(), profile.model());
            return Err(fault(field, format!("model `{word}` needs {lacking} of `{model}`")));
        }
    }
    Ok(found)
}

fn fault(field: impl Into<String>, problem: impl Into<String>) -> Fault {
    Fault::apart(field, problem)
}

fn is_sound(figure: f64) -> bool {
    figure.is_finite() && figure.abs() <= FIGURE_MAX
}

struct Section<'a> {
    field: &'a str,
    section: &'a InterferenceSection,
}

impl Section<'_> {
    fn fault<T>(&self, key: &str, problem: String) -> Result<T, Fault> {
        Err(fault(format!("{}.{key}", self.field), problem))
    }

    fn unused(&self, key: &str, is_empty: bool) -> Result<(), Fault> {
        if is_empty {
            return Ok(());
        }
        self.fault(key, format!("model `{}` has no use for it, remove it", self.section.model))
    }

    fn coefficients<const N: usize>(&self) -> Result<[f64; N], Fault> {
        let said = &self.section.coefficients;
        let found: Option<[f64; N]> = said.as_slice().try_into().ok();
        match found.filter(|found| found.iter().all(|figure| is_sound(*figure))) {
            Some(found) => Ok(found),
            None => {
                let model = &self.section.model;
                let problem =
                    format!("model `{model}` needs {N} numbers of at most {FIGURE_MAX}, got {said:?}");
                self.fault("coefficients", problem)
            }
        }
    }

    fn powers(&self) -> Result<Vec<(String, DevicePower)>, Fault> {
        let mut found = Vec::new();
        for (kind, figures) in &self.section.power {
            let PowerSection { cap_w, idle_w, clock_mhz, clock_mhz_per_w, launch_us_per_runner, launch_us } =
                *figures;
            let all = [
                ("cap_w", cap_w, cap_w >= 0.0),
                ("idle_w", idle_w, idle_w >= 0.0),
                ("clock_mhz", clock_mhz, clock_mhz > 0.0),
                ("clock_mhz_per_w", clock_mhz_per_w, clock_mhz_per_w <= 0.0),
                ("launch_us_per_runner", launch_us_per_runner, true),
                ("launch_us", launch_us, true),
            ];
            if let Some((key, value, _)) =
                all.into_iter().find(|(_, value, right)| !right || !is_sound(*value))
            {
                let problem = match key {
                    "clock_mhz" => "expected megahertz above 0",
                    "clock_mhz_per_w" => "expected a number of at most 0, for power lowers the clock",
                    "cap_w" | "idle_w" => "expected watts of at least 0",
                    _ => "expected a number of microseconds",
                };
                return self.fault(&format!("power.{kind}.{key}"), format!("{problem}, got {value}"));
            }
            let power =
                DevicePower { cap_w, idle_w, clock_mhz, clock_mhz_per_w, launch_us_per_runner, launch_us };
            found.push((kind.clone(), power));
        }
        Ok(found)
    }
}
