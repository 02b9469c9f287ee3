//! `tributary manager`, `tributary node` and `tributary token`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use tributary_manager::MulticastRange;

use crate::usage::whole_number;

const MANAGER_EXAMPLES: &str = "\
Examples:
  tributary token create token
  tributary manager --listen 127.0.0.1:7470 --token-file token
  tributary manager --listen 10.0.0.1:7470 --token-file token \\
      --tenants tenants.toml --topology fabric.toml

SIGTERM or SIGINT stops it cleanly; SIGHUP is ignored. https://ADDR/metrics serves Prometheus \
metrics; /healthz and /readyz answer without a token.";

const TOKEN_EXAMPLES: &str = "\
Examples:
  tributary token create token
  tributary token certificate token > manager.pem

Every manager and aggregation node of a fabric has the same operator's token, in a file that only its \
user may read.";

const NODE_EXAMPLES: &str = "\
Examples:
  tributary node --manager 10.0.0.1:7470 --token-file token \\
      --listen 10.0.0.7:7471 --name spine-1
  tributary node --manager 127.0.0.1:7470 --token-file token \\
      --listen 127.0.0.1:0 --name leaf-1

SIGTERM or SIGINT stops it cleanly; SIGHUP is ignored.";

/// Serve as the aggregation manager: register aggregation nodes, admit jobs, grant groups
#[derive(Debug, Args)]
#[command(after_help = MANAGER_EXAMPLES)]
pub(crate) struct ManagerFlags {
    /// Address to serve on; port 0 takes any free port
    #[arg(long, value_name = "IP:PORT", value_parser = socket_address)]
    pub(crate) listen: SocketAddr,

    /// File that holds the operator's token, or two, one a line, while one is replaced; its mode must be 0600
    #[arg(long, value_name = "FILE", env = "TRIBUTARY_TOKEN_FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: PathBuf,

    /// File that holds a token for those who may read metrics, status and the page, and change nothing; its mode
    /// must be 0600
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) reader_token_file: Option<PathBuf>,

    /// Description of the fabric: TOML, ibnetdiscover output or Slurm's topology.conf
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) topology: Option<PathBuf>,

    /// Tenants, by name, each with a token of its own and limits on what its jobs hold (TOML; see
    /// docs/operating.md)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) tenants: Option<PathBuf>,

    /// Multicast addresses for groups' results, one a group: the first address, how many, and the
    /// UDP port; without this option there is no multicast
    #[arg(long, value_name = "IP/COUNT:PORT", value_parser = multicast_range)]
    pub(crate) multicast: Option<MulticastRange>,

    /// Authenticate every frame between hosts with a code that only the group's members and aggregation nodes can
    /// make; without this option frames carry no code
    #[arg(long)]
    pub(crate) authenticate_frames: bool,

    /// Measurements of the site that `tributary tune FILE -- LAUNCHER` wrote, for all jobs that name no file of their own
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) tuning: Option<PathBuf>,

    /// Seconds after which a group that waits for hosts is logged, with their names; 0 for never
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = whole_number(0..=86_400))]
    pub(crate) late_after: u64,
}

/// Reads a range of multicast addresses, such as `239.255.70.0/256:7475`.
fn multicast_range(text: &str) -> Result<MulticastRange, String> {
    let parsed = text.split_once('/').and_then(|(first, rest)| {
        let (count, port) = rest.split_once(':')?;
        Some((first.parse::<Ipv4Addr>().ok()?, count.parse().ok()?, port.parse().ok()?))
    });
    match parsed {
        Some((first, addresses, port)) if first.is_multicast() && addresses > 0 && port > 0 => {
            Ok(MulticastRange { first, addresses, port })
        }
        _ => Err("a range such as 239.255.70.0/256:7475 is allowed".to_owned()),
    }
}

/// Serve as one aggregation node
#[derive(Debug, Args)]
#[command(after_help = NODE_EXAMPLES)]
pub(crate) struct NodeFlags {
    /// The manager to register with
    #[arg(long, value_name = "HOST:PORT", env = "TRIBUTARY_MANAGER", value_parser = host_and_port)]
    pub(crate) manager: String,

    /// File that holds the operator's token, or two, one a line, while one is replaced; its mode must be 0600
    #[arg(long, value_name = "FILE", env = "TRIBUTARY_TOKEN_FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: PathBuf,

    /// File that holds a token for those who may read metrics, status and the page, and change nothing; its mode
    /// must be 0600
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) reader_token_file: Option<PathBuf>,

    /// Address to listen on for links; port 0 takes any free port
    #[arg(long, value_name = "IP:PORT", value_parser = socket_address)]
    pub(crate) listen: SocketAddr,

    /// Name of this aggregation node in the fabric; no other that is running may have it
    #[arg(long, value_name = "NAME")]
    pub(crate) name: String,

    /// Most children that this aggregation node serves in one group: hosts, or aggregation nodes below it
    #[arg(long, value_name = "CHILDREN", default_value = "64", value_parser = whole_number(1..=1024))]
    pub(crate) radix: u64,

    /// Most outstanding operations that this aggregation node holds, over all groups
    #[arg(long, value_name = "COUNT", default_value = "1024", value_parser = whole_number(1..=1_048_576))]
    pub(crate) osos: u64,

    /// Longest segment that this aggregation node takes, in bytes; longer vectors are cut
    #[arg(long, value_name = "BYTES", default_value = "65536", value_parser = whole_number(256..=1_048_576))]
    pub(crate) payload_max: u64,

    /// Address under which hosts and other aggregation nodes reach --listen, if it is not the same
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    pub(crate) advertise: Option<String>,

    /// Unix socket over which processes of this machine get shared memory; without it, TCP only
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) shm: Option<PathBuf>,

    /// Address on which to serve Prometheus metrics at /metrics; without it, there are none
    #[arg(long, value_name = "IP:PORT", value_parser = socket_address)]
    pub(crate) metrics: Option<SocketAddr>,

    /// Longest segment that goes by UDP, in bytes; 0 for TCP only. The UDP socket has the address
    /// and, if it is free, the port number of --listen
    #[arg(long, value_name = "BYTES", default_value = "1388", value_parser = whole_number(0..=65_427))]
    pub(crate) datagram_max: u64,

    /// Microseconds to poll after the last frame before sleeping; polling occupies a core
    #[arg(long, value_name = "MICROSECONDS", default_value = "0", value_parser = whole_number(0..=1_000_000))]
    pub(crate) spin: u64,

    /// Where short segments are taken inside the kernel, before this process is woken: at each
    /// --interface where the kernel allows it (auto), there or not at all (tc), or nowhere (off)
    #[arg(long, value_name = "MODE", value_enum, default_value = "auto")]
    pub(crate) kernel: KernelFlag,

    /// Network interface at which requests for this aggregation node arrive; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Vec<String>,
}

/// Whether short segments are taken inside the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KernelFlag {
    /// Where the kernel allows it
    Auto,
    /// Always, at the ingress of traffic control: needs Linux 6.6, CAP_BPF, CAP_NET_ADMIN and
    /// CAP_PERFMON
    Tc,
    /// Never
    Off,
}

/// Make a token, for the operator, a tenant or readers, or print its certificate
#[derive(Debug, Args)]
#[command(after_help = TOKEN_EXAMPLES)]
pub(crate) struct TokenFlags {
    #[command(subcommand)]
    pub(crate) action: TokenAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenAction {
    /// Write a new random token to FILE with mode 0600; an existing file is an error
    #[command(after_help = "\
Examples:
  tributary token create token")]
    Create {
        /// The file to make
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Print the certificate (PEM) that daemons with the token in FILE present
    #[command(after_help = "\
Examples:
  tributary token certificate token > manager.pem
  curl --cacert manager.pem --connect-to manager.tributary:7470:10.0.0.1:7470 \\
      -H \"Authorization: Bearer $(cat token)\" \\
      https://manager.tributary:7470/metrics

The certificate is not secret. Tributary's programs do not need it; other tools do.")]
    Certificate {
        /// The token's file
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}

/// Reads `ip:port`.
pub(super) fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "an address such as 127.0.0.1:7470 is allowed".to_owned())
}

/// Reads `host:port`, where the host may be a name.
pub(super) fn host_and_port(text: &str) -> Result<String, String> {
    let allowed = || "a host and port such as 10.0.0.1:7470 is allowed".to_owned();
    let (host, port) = text.rsplit_once(':').ok_or_else(allowed)?;
    let port_is_good = port.parse::<u16>().is_ok_and(|port| port > 0);
    if host.is_empty() || host.contains('/') || host.contains(char::is_whitespace) || !port_is_good
    {
        return Err(allowed());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_needs_both() {
        for good in ["10.0.0.1:7470", "head:1", "[::1]:65535"] {
            assert_eq!(host_and_port(good), Ok(good.to_owned()));
        }
        for bad in ["", "head", ":1", "head:", "head:0", "head:65536", "http://head:1", "a b:1"] {
            assert!(host_and_port(bad).is_err(), "{bad}");
        }
    }
}
