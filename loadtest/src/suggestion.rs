//! Shapes for inputs that have free dimensions: candidates, the likeliest first, each tried on the server.

use std::collections::BTreeMap;
use std::time::Duration;

use oip::metadata::{ModelMetadata, TensorMetadata};

use crate::api::{Api, Unwatched};
use crate::connection::Connections;
use crate::error::LoadError;
use crate::model_config::Config;
use crate::outcome::Outcome;
use crate::payload::Payloads;

/// Extents to try for free dimensions that nothing tells.
const EXTENTS: [u64; 8] = [32, 48, 64, 1, 8, 16, 128, 224];

/// Extents of inputs by name, batch included, and where they come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suggestion {
    pub shapes: BTreeMap<String, Vec<u64>>,
    pub origin: &'static str,
}

/// What a server is asked with.
pub(crate) struct Asking<'a> {
    pub api: &'a Api,
    pub connections: &'a Connections,
    pub payloads: &'a Payloads,
    pub seed: u64,
    pub timeout: Duration,
}

impl Asking<'_> {
    /// Shapes for the open inputs of a model, which the server accepts.
    ///
    /// # Errors
    /// The server's answer to the last shape, if it accepts none.
    pub async fn shapes(
        &self,
        metadata: &ModelMetadata,
        open: &[&TensorMetadata],
    ) -> Result<Suggestion, String> {
        // Neither is part of every server.
        let config = self.api.config(self.connections, &metadata.name).await.unwrap_or_default();
        let seen = self.api.shapes(self.connections, &metadata.name).await.unwrap_or_default();
        let seen = seen.shapes.into_iter().map(|shape| shape.inputs);
        let mut refused = String::new();
        for candidate in candidates(open, &config, seen) {
            match self.try_out(metadata, &candidate).await {
                Ok(()) => return Ok(candidate),
                Err(reason) => refused = reason,
            }
        }
        Err(format!(
            "expected sizes (--shape); the server accepts none of those that were tried, the last answer was: {refused}"
        ))
    }

    async fn try_out(&self, metadata: &ModelMetadata, candidate: &Suggestion) -> Result<(), String> {
        let mut payloads = self.payloads.clone();
        payloads.shapes.extend(candidate.shapes.clone());
        let request = payloads.one(metadata, self.seed).map_err(|error: LoadError| error.to_string())?;
        let wire = self.api.infer(&request)?;
        let exchange = self.connections.exchange(&wire, &Unwatched);
        let reply = tokio::time::timeout(self.timeout, exchange)
            .await
            .map_err(|_| "no answer in time".to_owned())?
            .map_err(|failure| failure.to_string())?;
        match self.api.answer(&reply) {
            // A server that is busy has checked the request before.
            Ok(_) | Err(Outcome::Answered | Outcome::Refused { .. }) => Ok(()),
            Err(outcome @ Outcome::Failed { .. }) => Err(outcome.to_string()),
        }
    }
}

/// Shapes for all open inputs: of the warm-up samples, of the configuration, of earlier requests, and usual extents.
fn candidates(
    open: &[&TensorMetadata],
    config: &Config,
    seen: impl Iterator<Item = BTreeMap<String, Vec<u64>>>,
) -> Vec<Suggestion> {
    let complete = |rows: &BTreeMap<String, Vec<u64>>, origin| {
        let shape =
            |input: &&TensorMetadata| Some((input.name.clone(), whole(input, rows.get(&input.name)?)?));
        let shapes = open.iter().map(shape).collect::<Option<_>>()?;
        Some(Suggestion { shapes, origin })
    };
    let samples = config.samples().filter_map(|rows| complete(&rows, "the model's warm-up samples"));
    let fixed = config.fixed_rows();
    let declared = complete(&fixed, "the dims of the model's configuration");
    let seen = seen.filter_map(|rows| complete(&rows, "earlier requests")).take(1);
    let known = config.rows();
    let usual = EXTENTS.iter().map(|extent| {
        let shapes =
            open.iter().map(|input| (input.name.clone(), filled(input, known.get(&input.name), *extent)));
        Suggestion { shapes: shapes.collect(), origin: "trying usual ones" }
    });
    samples.chain(declared).chain(seen).chain(usual).collect()
}

/// The extents of one request, batch included; `None` if they do not fit.
fn whole(input: &TensorMetadata, row: &[u64]) -> Option<Vec<u64>> {
    let missing = input.shape.len().checked_sub(row.len())?;
    let batched = input.shape.first().is_some_and(|first| *first < 0);
    let shape: Vec<u64> = match missing {
        0 => row.to_vec(),
        1 if batched => std::iter::once(1).chain(row.iter().copied()).collect(),
        _ => return None,
    };
    let fits =
        |(extent, declared): (&u64, &i64)| u64::try_from(*declared).is_ok_and(|fixed| fixed == *extent);
    let free = |declared: &i64| *declared < 0;
    shape.iter().zip(&input.shape).all(|pair| free(pair.1) || fits(pair)).then_some(shape)
}

/// The declared extents, then those of the configuration, then `extent`.
fn filled(input: &TensorMetadata, known: Option<&Vec<i64>>, extent: u64) -> Vec<u64> {
    let offset = known.map_or(0, |known| input.shape.len().saturating_sub(known.len()));
    let place = |(place, declared): (usize, &i64)| {
        let configured = || {
            let dim = known?.get(place.checked_sub(offset)?)?;
            u64::try_from(*dim).ok()
        };
        match u64::try_from(*declared).ok().or_else(configured) {
            Some(fixed) => fixed,
            None if place == 0 => 1,
            None => extent,
        }
    };
    input.shape.iter().enumerate().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(name: &str, shape: &[i64]) -> TensorMetadata {
        TensorMetadata { name: name.to_owned(), datatype: "FP32".to_owned(), shape: shape.to_vec() }
    }

    fn rows(rows: &[(&str, &[u64])]) -> BTreeMap<String, Vec<u64>> {
        rows.iter().map(|(name, row)| ((*name).to_owned(), row.to_vec())).collect()
    }

    #[test]
    fn samples_come_first_then_dims_then_traffic_then_usual_extents() {
        let (image, mask) = (input("image", &[-1, 3, -1, -1]), input("mask", &[-1, -1]));
        let open = [&image, &mask];
        let config: Config = serde_json::from_str(
            r#"{"max_batch_size": 8,
                "input": [{"name": "image", "dims": ["3", "48", "-1"]}, {"name": "mask", "dims": [-1]}],
                "model_warmup": [
                    {"batch_size": 1, "inputs": {"image": {"dims": ["3", "48", "320"]}}},
                    {"batch_size": 1, "inputs": {"image": {"dims": [3, 48, 192]}, "mask": {"dims": ["9"]}}}]}"#,
        )
        .unwrap();
        let seen = [rows(&[("image", &[3, 48, 100])]), rows(&[("image", &[3, 48, 64]), ("mask", &[7])])];
        let found = candidates(&open, &config, seen.into_iter());
        let origins: Vec<_> = found.iter().map(|one| one.origin).collect();
        assert_eq!(origins[..3], ["the model's warm-up samples", "earlier requests", "trying usual ones"]);
        assert_eq!(found.len(), 2 + EXTENTS.len());
        assert_eq!(found[0].shapes, rows(&[("image", &[1, 3, 48, 192]), ("mask", &[1, 9])]));
        assert_eq!(found[1].shapes, rows(&[("image", &[1, 3, 48, 64]), ("mask", &[1, 7])]));
        assert_eq!(found[2].shapes, rows(&[("image", &[1, 3, 48, 32]), ("mask", &[1, 32])]));
    }

    #[test]
    fn dims_that_fix_all_are_a_candidate_and_shapes_that_do_not_fit_are_not() {
        let image = input("image", &[-1, 3, -1]);
        let config: Config =
            serde_json::from_str(r#"{"input": [{"name": "image", "dims": [3, 48]}]}"#).unwrap();
        let seen = [rows(&[("image", &[4, 48])])];
        let found = candidates(&[&image], &config, seen.into_iter());
        assert_eq!(found[0].origin, "the dims of the model's configuration");
        assert_eq!(found[0].shapes, rows(&[("image", &[1, 3, 48])]));
        assert!(found[1..].iter().all(|one| one.origin == "trying usual ones"));
    }
}
