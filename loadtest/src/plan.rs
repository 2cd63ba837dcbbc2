//! What is sent for each model of a workload: prepared requests, and how to check the answers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use oip::metadata::ModelMetadata;
use oip::{InferResponse, Parameter, Tensor};

use crate::api::Api;
use crate::connection::{Reply, Wire};
use crate::error::LoadError;
use crate::outcome::Outcome;
use crate::payload::{Payload, Payloads};

/// Upper bound on the JSON parts of correct answers that are kept for comparison, per number of rows.
const HEADS_MAX: usize = 8;

/// A request, ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    pub wire: Wire,
    pub rows: u32,
    expected: Option<Arc<Vec<Tensor>>>,
}

/// One model: its requests and the expected answers. Shared by all threads.
#[derive(Clone, Debug)]
pub(crate) struct ModelPlan {
    metadata: ModelMetadata,
    /// By rows.
    requests: BTreeMap<u32, Vec<Ready>>,
    /// The same with the header of each tenant, if requests name their tenant.
    by_tenant: BTreeMap<u16, BTreeMap<u32, Vec<Ready>>>,
    /// Largest absolute or relative difference between a value and the expected one.
    tolerance: f64,
}

/// What one thread remembers of a model.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// By rows of the request: the correct answer to another number of rows is wrong.
    right: RefCell<BTreeMap<u32, Vec<(Bytes, usize)>>>,
}

impl ModelPlan {
    /// `rows` are the numbers of rows that requests of the model may have, `class` is 0 for the most urgent and `None` for best effort.
    pub fn new(
        api: &Api,
        payloads: &Payloads,
        metadata: ModelMetadata,
        rows: impl Iterator<Item = u32>,
        class: Option<u8>,
        seed: u64,
        tolerance: f64,
    ) -> Result<Self, LoadError> {
        let mut requests = BTreeMap::new();
        for rows in rows {
            let ready = |payload: Payload| {
                let mut request = payload.request;
                let parameter = match class {
                    None => Some(("class", Parameter::String("best_effort".to_owned()))),
                    Some(0) => None,
                    Some(class) => Some(("priority", Parameter::Int(i64::from(class) + 1))),
                };
                request.parameters.extend(parameter.map(|(name, value)| (name.to_owned(), value)));
                let wire =
                    api.infer(&request).map_err(|problem| LoadError::model(&metadata.name, problem))?;
                Ok(Ready { wire, rows, expected: payload.expected })
            };
            let payloads = payloads.of(&metadata, rows, seed)?;
            requests.insert(rows, payloads.into_iter().map(ready).collect::<Result<_, LoadError>>()?);
        }
        Ok(Self { metadata, requests, by_tenant: BTreeMap::new(), tolerance })
    }

    /// The same requests, with the header `name` that names their tenant.
    pub fn naming_tenants<'a>(
        mut self,
        name: &HeaderName,
        tenants: impl Iterator<Item = (u16, &'a str)>,
    ) -> Result<Self, LoadError> {
        for (number, tenant) in tenants {
            let value = HeaderValue::from_str(tenant);
            let value = value.map_err(|error| LoadError::model(&self.metadata.name, error.to_string()))?;
            let mut requests = self.requests.clone();
            for ready in requests.values_mut().flatten() {
                ready.wire.parts.headers.insert(name.clone(), value.clone());
            }
            self.by_tenant.insert(number, requests);
        }
        Ok(self)
    }

    /// The first request of every number of rows, to test whether the server accepts them.
    pub fn probes(&self) -> impl Iterator<Item = &Ready> {
        self.requests.values().filter_map(|requests| requests.first())
    }

    /// The request of a tenant with `rows` rows that is sent as the model's request of this number; all of them are sent in rotation.
    pub fn of_number(&self, (tenant, rows): (u16, u32), number: usize) -> Option<&Ready> {
        let requests = self.by_tenant.get(&tenant).unwrap_or(&self.requests).get(&rows)?;
        requests.get(number % requests.len().max(1))
    }

    /// The outcome of a request with this reply.
    pub fn outcome(&self, api: &Api, ready: &Ready, reply: &Reply, memory: &Memory) -> Outcome {
        let head = api.head(reply);
        if ready.expected.is_none()
            && let Some(head) = &head
            && memory.right.borrow().get(&ready.rows).is_some_and(|heads| heads.contains(head))
        {
            return Outcome::Answered;
        }
        let response = match api.answer(reply) {
            Ok(response) => response,
            Err(outcome) => return outcome,
        };
        if let Err(problem) = self.check(ready, &response) {
            return Outcome::wrong(problem);
        }
        if let Some(head) = head {
            let mut right = memory.right.borrow_mut();
            let heads = right.entry(ready.rows).or_default();
            if heads.len() < HEADS_MAX {
                heads.push(head);
            }
        }
        Outcome::Answered
    }

    fn check(&self, ready: &Ready, response: &InferResponse) -> Result<(), String> {
        if response.model_name != self.metadata.name {
            return Err(format!(
                "expected an answer of `{}`, got one of `{}`",
                self.metadata.name, response.model_name
            ));
        }
        let output = |name: &str| {
            let found = response.outputs.iter().map(|(tensor, _)| tensor).find(|tensor| tensor.name == name);
            found.ok_or_else(|| format!("no output `{name}`"))
        };
        for declared in &self.metadata.outputs {
            let tensor = output(&declared.name)?;
            if tensor.datatype.as_str() != declared.datatype {
                let (expected, found) = (&declared.datatype, tensor.datatype);
                return Err(format!("output `{}`: expected {expected}, got {found}", declared.name));
            }
            if !fits(&declared.shape, tensor.shape.extents(), ready.rows) {
                let (expected, found, rows) = (&declared.shape, &tensor.shape, ready.rows);
                return Err(format!(
                    "output `{}`: expected {expected:?} for {rows} row(s), got {found}",
                    declared.name
                ));
            }
        }
        for expected in ready.expected.iter().flat_map(|expected| expected.iter()) {
            let found = output(&expected.name)?;
            crate::values::compare(expected, found, self.tolerance)
                .map_err(|problem| format!("output `{}`: {problem}", expected.name))?;
        }
        Ok(())
    }
}

/// Whether a tensor has the declared extents. The first, where it is free, is the number of rows; a single row may
/// give any number, for not every free first extent is a batch.
fn fits(declared: &[i64], found: &[u64], rows: u32) -> bool {
    declared.len() == found.len()
        && declared.iter().zip(found).enumerate().all(|(place, (&declared, &found))| {
            match u64::try_from(declared) {
                Ok(declared) => declared == found,
                Err(_) => place > 0 || rows == 1 || found == u64::from(rows),
            }
        })
}
