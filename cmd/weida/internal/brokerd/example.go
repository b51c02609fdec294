package brokerd

// Example is a configuration with every key; TestExample holds it to the defaults.
const Example = `# weida broker run --config FILE

[broker]
data_dir = "weida-data"        # the identity and the queues; made if it is not there
listen = ["127.0.0.1:7443"]    # UDP; "0.0.0.0:7443" for other machines
socket = ""                    # for programs of the same user; default: broker.sock in the data folder; "none": none
max_connections = 1024         # for each address
max_connections_per_peer = 64  # for each key
idle_timeout = "30s"           # a link on which nothing was heard for so long has ended
min_free_bytes = "64MiB"       # of the file system; with less, messages are rejected
shutdown_timeout = "10s"       # how long a stop waits for deliveries that are out

[trust]                        # who may connect over QUIC; one of these must be said
# clients = ["sha256:…"]       # the fingerprints that "weida identity" and the log of weir print
# ca_file = "clients.pem"      # certificates that vouch for clients
anybody = true                 # everybody who reaches the address

[[queue]]                      # one for each queue
path = "/logs"
durability = "flushed"         # a confirm means: "flushed" survives a power cut, "written" the death of the process, "memory" neither
max_bytes = "64MiB"            # held in memory, 256 bytes for each message included; more is rejected
max_unsettled = 256            # deliveries that one subscription has out
max_attempts = 0               # after so many a message goes to dead_letter; 0: never
dead_letter = ""               # the path of another queue
known_ids = 65536              # of so many messages repeats are known and not stored again; -1: of none
max_disk_bytes = "512MiB"      # of the log; default: 6 times max_bytes and 128 MiB

[admin]
listen = "127.0.0.1:9186"      # /metrics, /healthz, /readyz, /api/v1/queues; empty: not on TCP
socket = ""                    # the same, and the messages; default: admin.sock in the data folder

[log]
level = "info"                 # debug, info, warn or error
format = "text"                # or "json"
`
