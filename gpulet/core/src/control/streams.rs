//! The streams of requests that a scaler decides on: models of no family, then families.
//!
//! A family is one stream, so that its forecast does not depend on which variant the router chose for each request.

use super::Model;
use super::families::Family;
use crate::scaling::{ModelObservation, Service};

/// The streams of requests that a scaler decides on: models of no family, then families.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// Each with the places of its models.
    streams: Vec<(String, Vec<usize>)>,
}

impl Streams {
    /// `families`: empty if variants are planned as separate models.
    pub(super) fn of(models: &[Model], families: &[Family]) -> Self {
        let own = |family: &Family| -> Vec<usize> {
            let is_own = |model: &Model| family.variants.iter().any(|variant| variant.name == model.name);
            models.iter().enumerate().filter(|(_, model)| is_own(model)).map(|(at, _)| at).collect()
        };
        let families: Vec<(String, Vec<usize>)> =
            families.iter().map(|family| (family.name.clone(), own(family))).collect();
        let is_single = |at: usize| families.iter().all(|(_, own)| !own.contains(&at));
        let single = models.iter().enumerate().filter(|(at, _)| is_single(*at));
        let mut streams: Vec<(String, Vec<usize>)> =
            single.map(|(at, model)| (model.name.clone(), vec![at])).collect();
        streams.extend(families.into_iter().filter(|(_, own)| !own.is_empty()));
        Self { streams }
    }

    /// Their names.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.streams.iter().map(|(name, _)| name)
    }

    /// What happened to each: the sum of what happened to its models, whose attainments count by their arrivals.
    pub(super) fn observed(&self, models: &[ModelObservation]) -> Vec<ModelObservation> {
        let sum = |places: &Vec<usize>| {
            let own: Vec<&ModelObservation> = places.iter().filter_map(|at| models.get(*at)).collect();
            if let [one] = own.as_slice() {
                return **one;
            }
            let (mut sum, mut ended, mut good) = (ModelObservation::default(), 0.0, 0.0);
            for one in own {
                sum.arrivals = sum.arrivals.saturating_add(one.arrivals);
                sum.queued = sum.queued.saturating_add(one.queued);
                sum.refused = sum.refused.saturating_add(one.refused);
                sum.capacity += one.capacity;
                if let Some(attainment) = one.attainment {
                    let weight = one.arrivals.max(1) as f64;
                    ended += weight;
                    good += weight * attainment;
                }
            }
            sum.attainment = (ended > 0.0).then(|| good / ended);
            sum
        };
        self.streams.iter().map(|(_, places)| sum(places)).collect()
    }

    /// Each as a service of a scaler. A replica of a family is that of the variant with the lowest rate, so that scalers that
    /// plan whole replicas ask for as little more than the load as possible.
    ///
    /// # Errors
    /// When a model has no profile.
    pub(super) fn services(&self, models: &[Model]) -> Result<Vec<Service>, String> {
        let of = |(name, places): &(String, Vec<usize>)| {
            let own = places.iter().filter_map(|at| models.get(*at));
            let own = own.map(Model::service).collect::<Result<Vec<Service>, String>>()?;
            let is_needed = own.iter().any(|service| service.replicas_min > 0);
            let slowest =
                own.into_iter().min_by(|left, right| left.replica_rate.total_cmp(&right.replica_rate));
            let slowest = slowest.ok_or_else(|| format!("`{name}`: no model of it is served"))?;
            Ok(Service { name: name.clone(), replicas_min: u32::from(is_needed), ..slowest })
        };
        self.streams.iter().map(of).collect()
    }
}
