//! Requests that may get any number of responses.

use std::pin::Pin;

use models::engine::StreamedResponse;
use node::catalog::submit::model_refusal;
use node::reason::Refusal;
use oip::{InferRequest, InferResponse, RequestedOutput};
use tokio::sync::mpsc;

use super::dispatch;
use super::infer::select;
use super::sink::channel;
use super::{Answered, RequestContext, Service};

/// One of the responses to a request.
#[derive(Debug)]
pub struct Streamed {
    /// The response, or the error in its place. `None`: only the end is told, which Triton's clients see as an empty
    /// response if they ask for it.
    pub response: Option<Result<InferResponse, Refusal>>,
    /// Whether it is the last one.
    pub last: bool,
}

type Run<'a> = Pin<Box<dyn Future<Output = Result<Answered, Refusal>> + Send + 'a>>;

/// The responses to one request, in order. Dropping it cancels the request.
pub struct Responses<'a> {
    run: Option<Run<'a>>,
    /// Responses of a decoupled model.
    received: Option<mpsc::Receiver<StreamedResponse>>,
    template: InferResponse,
    outputs: Option<Vec<RequestedOutput>>,
    ended: bool,
}

impl Service {
    /// Validates a request and queues it. An ordinary model gives one response, which is the last one; a decoupled model
    /// gives any number, and each of them may be an error.
    ///
    /// # Errors
    /// If the model does not serve. Other errors are responses.
    pub fn infer_stream(
        &self,
        request: InferRequest,
        context: RequestContext,
    ) -> Result<Responses<'_>, Refusal> {
        let catalog = self.node.catalog();
        let held = catalog.hold(&request.model_name, request.model_version.as_deref(), context.tenant.number);
        let held = held.map_err(|refusal| self.logged(&context, &request.model_name, refusal))?;
        let loaded = &held.loaded;
        let template = InferResponse {
            model_name: loaded.name.clone(),
            model_version: loaded.version.to_string(),
            id: request.id.clone(),
            parameters: Vec::new(),
            outputs: Vec::new(),
        };
        let outputs = request.outputs.clone();
        let (sink, received) = loaded.decoupled.then(channel).unzip();
        let run = async move { dispatch::run(&self.node, held, request, &context, sink).await };
        Ok(Responses { run: Some(Box::pin(run)), received, template, outputs, ended: false })
    }
}

impl Responses<'_> {
    /// Whether the model is decoupled: any number of responses may follow.
    pub fn is_decoupled(&self) -> bool {
        self.received.is_some()
    }

    /// The next response. `None` after the last one. Can be cancelled: no response is lost.
    pub async fn next(&mut self) -> Option<Streamed> {
        if self.ended {
            return None;
        }
        let next = self.wait().await;
        self.ended = next.last;
        Some(next)
    }

    async fn wait(&mut self) -> Streamed {
        let Self { run, received, .. } = self;
        let done = match (run.as_mut(), received.as_mut()) {
            (Some(run), None) => run.await,
            (Some(run), Some(received)) => tokio::select! {
                biased;
                Some(response) = received.recv() => return self.streamed(response),
                done = run => done,
            },
            // The run has ended without an error, so the last response is there.
            (None, received) => {
                let response = received.and_then(|received| received.try_recv().ok());
                return match response {
                    Some(response) => self.streamed(response),
                    None => Streamed { response: None, last: true },
                };
            }
        };
        self.run = None;
        match (done, &mut self.received) {
            (Err(refusal), _) => Streamed { response: Some(Err(refusal)), last: true },
            (Ok(answered), None) => Streamed { response: Some(Ok(answered.response)), last: true },
            (Ok(_), Some(received)) => match received.try_recv() {
                Ok(response) => self.streamed(response),
                Err(_) => Streamed { response: None, last: true },
            },
        }
    }

    fn streamed(&self, streamed: StreamedResponse) -> Streamed {
        let response = streamed.response.map(|response| {
            let response = response.map_err(|error| model_refusal(&self.template.model_name, &error))?;
            Ok(InferResponse {
                parameters: response.parameters,
                outputs: select(response.outputs, self.outputs.clone()),
                ..self.template.clone()
            })
        });
        Streamed { response, last: streamed.last }
    }
}
