//! Devices and variants with linear batch times.

use std::sync::Arc;

use gpulet_core::interference::{Interference, NoInterference};
use gpulet_core::problem::{Device, DeviceType, Problem, Workload};
use gpulet_core::profile::Profile;
use variant_plan::{Family, Question, Spot, SpotRules, Variant};

/// A type of device: name, units, speed of the whole device, cost, number.
pub type Kind<'a> = (&'a str, u32, f64, f64, usize);
/// A model: name, milliseconds of a batch, milliseconds of each row, quality. On a share of a device, a row takes longer in proportion.
pub type Model<'a> = (&'a str, f64, f64, f64);

/// A family of all models, on all devices.
#[derive(Debug)]
pub struct World<'a> {
    pub kinds: Vec<Kind<'a>>,
    pub models: Vec<Model<'a>>,
    pub slo_ms: f64,
    pub rate: f64,
    pub quality_min: f64,
    pub quality_mean: f64,
    /// Kinds that are spot devices: name, losses per hour, seconds until replaced.
    pub spot: Vec<(&'a str, f64, f64)>,
    pub lost_max: f64,
}

impl Default for World<'_> {
    fn default() -> Self {
        Self {
            kinds: vec![("small", 4, 1.0, 1.0, 8), ("large", 8, 3.0, 2.5, 8)],
            models: vec![("s", 1.0, 1.0, 0.90), ("m", 2.0, 2.5, 0.95), ("l", 4.0, 6.0, 0.98)],
            slo_ms: 100.0,
            rate: 1_000.0,
            quality_min: 0.0,
            quality_mean: 0.0,
            spot: Vec::new(),
            lost_max: 1.0,
        }
    }
}

fn profile(model: &Model<'_>, kind: &Kind<'_>) -> String {
    let ((name, fixed, row, _), (device, units, speed, ..)) = (model, kind);
    let mut lines = format!(
        r#"{{"profile":{{"version":1,"model":"{name}","device":"{device}","engine":"test","source":"synthesised","units_total":{units},"weights_bytes":0}}}}"#
    );
    for batch in [1_u32, 2, 4, 8, 16] {
        for own in 1..=*units {
            let us = 1e3 * (fixed + row * f64::from(batch) * f64::from(*units) / f64::from(own)) / speed;
            lines.push_str(&format!(
                "\n{{\"cell\":{{\"batch\":{batch},\"units\":{own},\"p50_us\":{us},\"p95_us\":{us},\"p99_us\":{us},\"count\":100}}}}"
            ));
        }
    }
    lines
}

pub fn demand(name: &str, slo_ms: f64, rate: f64) -> Workload {
    Workload {
        name: name.to_owned(),
        model: name.to_owned(),
        tenant: String::new(),
        not_with: Vec::new(),
        slo_us: 1e3 * slo_ms,
        rate,
        headroom: 1.0,
        replicas_min: 1,
        batch_max: 16,
    }
}

impl World<'_> {
    pub fn family(&self) -> Family {
        let variant = |model: &Model<'_>| Variant::of_model(model.0.to_owned(), model.3);
        Family {
            name: "family".to_owned(),
            demand: demand("family", self.slo_ms, self.rate),
            quality_min: self.quality_min,
            quality_mean: self.quality_mean,
            variants: self.models.iter().map(variant).collect(),
        }
    }

    pub fn devices(&self) -> Vec<Device> {
        let mut devices = Vec::new();
        for (name, units, _, cost, count) in &self.kinds {
            let device_type = Arc::new(DeviceType {
                name: (*name).to_owned(),
                units: *units,
                sizes: (1..=*units).collect(),
                gpulets_max: 8,
                base_bytes: 0,
                gpulet_bytes: 0,
            });
            devices.extend((0..*count).map(|at| Device {
                name: format!("{name}-{at}").into(),
                device_type: Arc::clone(&device_type),
                memory_bytes: 1 << 30,
                fault_domain: format!("{name}-{at}"),
                cost: *cost,
            }));
        }
        devices
    }

    /// Profiles of the models on each type of device.
    pub fn profiles(&self) -> Result<Vec<Profile>, String> {
        let pairs = self.models.iter().flat_map(|model| self.kinds.iter().map(move |kind| (model, kind)));
        let text: Vec<String> = pairs.map(|(model, kind)| profile(model, kind)).collect();
        let profiles: Result<Vec<_>, _> = text.iter().map(|text| Profile::read(text)).collect();
        Ok(profiles.map_err(|error| error.to_string())?.into_iter().flatten().collect())
    }

    pub fn question(&self) -> Result<Question, String> {
        let profiles = self.profiles()?;
        let none = Interference::NoInterference(NoInterference);
        let problem =
            Problem::new(self.devices(), Vec::new(), profiles, none).map_err(|error| error.to_string())?;
        let spot = self.devices().into_iter().filter_map(|device| {
            let kind = &device.device_type.name;
            let (_, loss_per_hour, replace_s) = self.spot.iter().find(|(name, ..)| name == kind)?;
            Some(Spot { device: device.name, loss_per_hour: *loss_per_hour, replace_s: *replace_s })
        });
        let spot = SpotRules { devices: spot.collect(), lost_max: self.lost_max };
        Question::new(problem, vec![self.family()], spot).map_err(|error| error.to_string())
    }
}
