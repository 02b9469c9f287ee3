//! `tributary manager`, `tributary node` and `tributary token`: passes options, files and signals to the
//! daemons' library.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use tributary_client::report::output;
use tributary_daemon::certificate_pem;
use tributary_daemon::limits;
use tributary_daemon::manager::{Manager, ManagerOptions, load_tenants};
use tributary_daemon::node::{KernelOptions, Node, NodeLimits, NodeOptions};
use tributary_daemon::shutdown::Shutdown;
use tributary_daemon::token::{CreateTokenError, Token};
use tributary_daemon::tokens::Tokens;
use tributary_manager::ManagerConfig;
use tributary_topology::Fabric;
use tributary_topology::readers::{self, Format};
use tributary_tuning::Tuning;
use tributary_wire::control::KernelState;

use crate::flags::{KernelFlag, ManagerFlags, NodeFlags, TokenAction, TokenFlags};
use crate::signals::{self, Signals};
use crate::usage::UsageError;

/// Longest description of a fabric: what ibnetdiscover says of tens of thousands of hosts.
const FABRIC_BYTES_MAX: u64 = 256 << 20;

const READERS_OPTION: &str = "--reader-token-file";

/// Serves as the manager until a signal asks to stop.
pub(crate) fn manager(flags: ManagerFlags) -> anyhow::Result<ExitCode> {
    raise_open_files()?;
    let tokens = load_tokens(&flags.token_file, flags.reader_token_file.as_deref())?;
    let options = ManagerOptions {
        tenants: match &flags.tenants {
            Some(file) => load_tenants(file, &tokens)
                .map_err(|error| UsageError::new("--tenants", "", error.to_string()))?,
            None => Vec::new(),
        },
        tokens,
        fabric: flags.topology.as_deref().map_or_else(|| Ok(Fabric::new()), read_fabric)?,
        config: ManagerConfig {
            multicast: flags.multicast,
            authenticates_frames: flags.authenticate_frames,
            ..ManagerConfig::default()
        },
        tuning: flags.tuning.as_deref().map(read_tuning).transpose()?,
        late_after: (flags.late_after > 0).then(|| Duration::from_secs(flags.late_after)),
    };
    let shutdown = Shutdown::new();
    let _watch = stop_on_signal(&shutdown)?;
    let listener = std::net::TcpListener::bind(flags.listen)
        .with_context(|| format!("--listen '{}'", flags.listen))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("the manager's threads did not start")?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        announce(&format!("manager listens on {address}"))?;
        Manager::new(options, shutdown)?.serve(listener).await;
        Ok(ExitCode::SUCCESS)
    })
}

/// The text of a tuning file that can be used.
fn read_tuning(file: &Path) -> anyhow::Result<String> {
    let tuning = Tuning::read(file)
        .map_err(|error| UsageError::new("--tuning", file.to_string_lossy(), error.to_string()))?;
    Ok(tuning.to_toml())
}

/// Serves as an aggregation node until a signal asks to stop.
pub(crate) fn node(flags: NodeFlags) -> anyhow::Result<ExitCode> {
    raise_open_files()?;
    let kernel = kernel_options(flags.kernel, flags.interface)?;
    let limits = NodeLimits {
        radix: u16::try_from(flags.radix).expect("the option's range ends at 1024"),
        osos: u32::try_from(flags.osos).expect("the option's range ends below 2^32"),
        payload_max_bytes: u32::try_from(flags.payload_max)
            .expect("the option's range ends below 2^32"),
        ..NodeLimits::default()
    };
    let options = NodeOptions {
        name: flags.name,
        manager: flags.manager,
        tokens: load_tokens(&flags.token_file, flags.reader_token_file.as_deref())?,
        listen: flags.listen,
        advertise: flags.advertise,
        shm_socket: flags.shm,
        metrics: flags.metrics,
        limits,
        datagram_payload_max_bytes: u32::try_from(flags.datagram_max)
            .expect("the option's range ends below 2^32"),
        spin: Duration::from_micros(flags.spin),
        kernel,
    };
    let shutdown = Shutdown::new();
    let _watch = stop_on_signal(&shutdown)?;
    let name = options.name.clone();
    let node = Node::bind(options)?;
    announce(&format!("aggregation node {name} listens on {}", node.address().tcp))?;
    if let Some(address) = node.metrics_address() {
        announce(&format!("aggregation node {name} serves metrics on {address}"))?;
    }
    match node.kernel_state() {
        KernelState::Off => {}
        KernelState::At(interfaces) => {
            let interfaces = interfaces.join(", ");
            announce(&format!(
                "aggregation node {name} takes short segments inside the kernel at {interfaces}"
            ))?;
        }
        KernelState::Unavailable(reason) => {
            announce(&format!(
                "aggregation node {name} takes nothing inside the kernel: {reason}"
            ))?;
        }
    }
    node.run(&shutdown)?;
    Ok(ExitCode::SUCCESS)
}

fn kernel_options(
    kernel: KernelFlag,
    interfaces: Vec<String>,
) -> Result<KernelOptions, UsageError> {
    match kernel {
        KernelFlag::Auto if interfaces.is_empty() => Ok(KernelOptions::Off),
        KernelFlag::Auto => Ok(KernelOptions::Auto(interfaces)),
        KernelFlag::Tc if interfaces.is_empty() => {
            Err(UsageError::new("--kernel", "tc", "with an --interface"))
        }
        KernelFlag::Tc => Ok(KernelOptions::Required(interfaces)),
        KernelFlag::Off => Ok(KernelOptions::Off),
    }
}

/// Makes a token, or prints its certificate.
pub(crate) fn token(flags: TokenFlags) -> anyhow::Result<ExitCode> {
    match flags.action {
        TokenAction::Create { file } => create_token(&file),
        TokenAction::Certificate { file } => {
            let token = Token::load(&file).map_err(|error| file_error("FILE", &file, &error))?;
            io::stdout().lock().write_all(certificate_pem(&token).as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn create_token(file: &Path) -> anyhow::Result<ExitCode> {
    match Token::create(file) {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(error @ (CreateTokenError::Exists { .. } | CreateTokenError::Unwritable { .. })) => {
            Err(file_error("FILE", file, &error).into())
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn raise_open_files() -> anyhow::Result<()> {
    let files = limits::raise_open_files().context("the limit of open files can't be raised")?;
    tracing::debug!(files, "limit of open files");
    Ok(())
}

fn load_tokens(operator: &Path, readers: Option<&Path>) -> Result<Tokens, UsageError> {
    let load =
        |option, file| Token::load_all(file).map_err(|error| file_error(option, file, &error));
    let mut tokens = Tokens { operator: load("--token-file", operator)?, readers: Vec::new() };
    let Some(file) = readers else { return Ok(tokens) };
    let readers = load(READERS_OPTION, file)?;
    if let Some(holder) = readers.iter().find_map(|token| tokens.holder_of(token)) {
        return Err(file_error(READERS_OPTION, file, &format!("{holder} has the same token")));
    }
    tokens.readers = readers;
    Ok(tokens)
}

fn read_fabric(file: &Path) -> Result<Fabric, UsageError> {
    let bytes = output::read(file, FABRIC_BYTES_MAX)
        .map_err(|error| file_error("--topology", file, &error))?;
    let text = String::from_utf8(bytes).map_err(|error| file_error("--topology", file, &error))?;
    readers::read(Format::detect(&text), &text)
        .map_err(|error| file_error("--topology", file, &error))
}

fn file_error(option: &str, file: &Path, error: &dyn std::fmt::Display) -> UsageError {
    UsageError::new(option, file.to_string_lossy(), error.to_string())
}

fn stop_on_signal(shutdown: &Shutdown) -> io::Result<crate::signals::Watch> {
    let shutdown = shutdown.clone();
    Ok(Signals::catch_of_daemon()?.watch(move |signal| {
        if signal == signals::HANG_UP {
            // A terminal or a launcher that goes away takes nobody's fabric with it.
            tracing::info!("goes on after {}", tributary_bench::name_signal(signal));
            return;
        }
        tracing::info!("stopping after {}", tributary_bench::name_signal(signal));
        shutdown.request();
    }))
}

/// Writes a line to standard output for which the process that started this daemon may wait.
pub(crate) fn announce(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
