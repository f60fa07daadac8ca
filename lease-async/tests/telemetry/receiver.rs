//! A receiver of OTLP inside the test.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio::runtime::Runtime;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::export::Transport;

/// What has arrived.
#[derive(Clone, Default)]
pub(crate) struct Arrived(Arc<Mutex<(Vec<Span>, Vec<Metric>)>>);

impl Arrived {
    fn spans(&self, request: ExportTraceServiceRequest) {
        let resources = request.resource_spans.into_iter();
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        self.0
            .lock()
            .unwrap()
            .0
            .extend(scopes.flat_map(|scope| scope.spans));
    }

    fn metrics(&self, request: ExportMetricsServiceRequest) {
        let resources = request.resource_metrics.into_iter();
        let scopes = resources.flat_map(|resource| resource.scope_metrics);
        self.0
            .lock()
            .unwrap()
            .1
            .extend(scopes.flat_map(|scope| scope.metrics));
    }

    pub(crate) fn take(&self) -> (Vec<Span>, Vec<Metric>) {
        core::mem::take(&mut self.0.lock().unwrap())
    }
}

#[tonic::async_trait]
impl TraceService for Arrived {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.spans(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Arrived {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.metrics(request.into_inner());
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

/// Listens for one way to speak, and answers where.
pub(crate) fn listen(transport: Transport, runtime: &Runtime) -> (Arrived, String) {
    let arrived = Arrived::default();
    let kept = arrived.clone();
    let at = match transport {
        Transport::Grpc => {
            let _inside = runtime.enter();
            let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let at = incoming.local_addr().unwrap();
            let server = Server::builder()
                .add_service(TraceServiceServer::new(arrived.clone()))
                .add_service(MetricsServiceServer::new(arrived));
            runtime.spawn(server.serve_with_incoming(incoming));
            at
        }
        Transport::Http => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let at = listener.local_addr().unwrap();
            thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    let arrived = arrived.clone();
                    thread::spawn(move || serve(&stream, &arrived));
                }
            });
            at
        }
    };
    (kept, format!("http://{at}"))
}

/// As much of HTTP as an exporter speaks.
fn serve(stream: &TcpStream, arrived: &Arrived) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let head = head.to_lowercase();
        let length = head.split("content-length:").nth(1).unwrap();
        let length = length.lines().next().unwrap().trim().parse().unwrap();
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        match head.split(' ').nth(1).unwrap() {
            "/v1/traces" => arrived.spans(ExportTraceServiceRequest::decode(&*body).unwrap()),
            "/v1/metrics" => arrived.metrics(ExportMetricsServiceRequest::decode(&*body).unwrap()),
            path => panic!("nobody sends to {path}"),
        }
        let answer =
            "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
        let mut stream = stream;
        stream.write_all(answer.as_bytes()).unwrap();
    }
}
