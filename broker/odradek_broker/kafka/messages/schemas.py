"""The messages of Kafka's protocol that this broker reads and writes, all but Produce and Fetch.

Written after Kafka's own message definitions (Apache Kafka 4.1.1, `common/message/*.json`), with its names in small
letters; `codec.py` explains the notation and reads it. Versions are those that Kafka 4.1.1 offers. The first line of
each says the name, the versions, and from which version on the encoding is flexible. The tests compare every message
at every version with `kio`, which is generated from the same definitions.
"""

from __future__ import annotations

from odradek_broker.kafka.messages.group_schemas import GROUP_DEFINITIONS
from odradek_broker.kafka.messages.quorum_schemas import QUORUM_DEFINITIONS
from odradek_broker.kafka.messages.security_schemas import SECURITY_DEFINITIONS

DEFINITIONS = (
    GROUP_DEFINITIONS
    | QUORUM_DEFINITIONS
    | SECURITY_DEFINITIONS
    | {
        2: """
ListOffsets 1-10 flexible 6
request
  replica_id int32
  isolation_level int8 2+
  topics []
    name string
    partitions []
      partition_index int32
      current_leader_epoch int32 4+ =-1
      timestamp int64
  timeout_ms int32 10+
response
  throttle_time_ms int32 2+
  topics []
    name string
    partitions []
      partition_index int32
      error_code int16
      timestamp int64 =-1
      offset int64 =-1
      leader_epoch int32 4+ =-1
""",
        3: """
Metadata 0-13 flexible 9
request
  topics [] ?1+
    topic_id uuid 10+
    name string ?10+
  allow_auto_topic_creation bool 4+ =true
  include_cluster_authorized_operations bool 8-10
  include_topic_authorized_operations bool 8+
response
  throttle_time_ms int32 3+
  brokers []
    node_id int32
    host string
    port int32
    rack string 1+ ? =null
  cluster_id string 2+ ? =null
  controller_id int32 1+ =-1
  topics []
    error_code int16
    name string ?12+
    topic_id uuid 10+
    is_internal bool 1+
    partitions []
      error_code int16
      partition_index int32
      leader_id int32
      leader_epoch int32 7+ =-1
      replica_nodes [int32]
      isr_nodes [int32]
      offline_replicas [int32] 5+
    topic_authorized_operations int32 8+ =-2147483648
  error_code int16 13+
  cluster_authorized_operations int32 8-10 =-2147483648
""",
        10: """
FindCoordinator 0-6 flexible 3
request
  key string 0-3
  key_type int8 1+
  coordinator_keys [string] 4+
response
  throttle_time_ms int32 1+
  coordinators [] 4+
    key string
    node_id int32
    host string
    port int32
    error_code int16
    error_message string ?
  error_code int16 0-3
  error_message string 1-3 ?
  node_id int32 0-3
  host string 0-3
  port int32 0-3
""",
        17: """
SaslHandshake 0-1 flexible none
request
  mechanism string
response
  error_code int16
  mechanisms [string]
""",
        18: """
ApiVersions 0-4 flexible 3
request
  client_software_name string 3+
  client_software_version string 3+
response
  error_code int16
  api_keys []
    api_key int16
    min_version int16
    max_version int16
  throttle_time_ms int32 1+
  supported_features [] 3+ @0
    name string
    min_version int16
    max_version int16
  finalized_features_epoch int64 3+ @1 =-1
  finalized_features [] 3+ @2
    name string
    max_version_level int16
    min_version_level int16
  zk_migration_ready bool 3+ @3
""",
        19: """
CreateTopics 2-7 flexible 5
request
  topics []
    name string
    num_partitions int32
    replication_factor int16
    assignments []
      partition_index int32
      broker_ids [int32]
    configs []
      name string
      value string ?
  timeout_ms int32 =60000
  validate_only bool
response
  throttle_time_ms int32
  topics []
    name string
    topic_id uuid 7+
    error_code int16
    error_message string ?
    topic_config_error_code int16 5+ @0
    num_partitions int32 5+ =-1
    replication_factor int16 5+ =-1
    configs [] 5+ ?
      name string
      value string ?
      read_only bool
      config_source int8 =-1
      is_sensitive bool
""",
        20: """
DeleteTopics 1-6 flexible 4
request
  topics [] 6+
    name string ? =null
    topic_id uuid
  topic_names [string] 1-5
  timeout_ms int32
response
  throttle_time_ms int32
  responses []
    name string ?6+
    topic_id uuid 6+
    error_code int16
    error_message string 5+ ? =null
""",
        21: """
DeleteRecords 0-2 flexible 2
request
  topics []
    name string
    partitions []
      partition_index int32
      offset int64
  timeout_ms int32
response
  throttle_time_ms int32
  topics []
    name string
    partitions []
      partition_index int32
      low_watermark int64
      error_code int16
""",
        22: """
InitProducerId 0-5 flexible 2
request
  transactional_id string ?
  transaction_timeout_ms int32
  producer_id int64 3+ =-1
  producer_epoch int16 3+ =-1
response
  throttle_time_ms int32
  error_code int16
  producer_id int64 =-1
  producer_epoch int16
""",
        23: """
OffsetForLeaderEpoch 2-4 flexible 4
request
  replica_id int32 3+ =-2
  topics []
    topic string
    partitions []
      partition int32
      current_leader_epoch int32 =-1
      leader_epoch int32
response
  throttle_time_ms int32
  topics []
    topic string
    partitions []
      error_code int16
      partition int32
      leader_epoch int32 =-1
      end_offset int64 =-1
""",
        32: """
DescribeConfigs 1-4 flexible 4
request
  resources []
    resource_type int8
    resource_name string
    configuration_keys [string] ?
  include_synonyms bool
  include_documentation bool 3+
response
  throttle_time_ms int32
  results []
    error_code int16
    error_message string ?
    resource_type int8
    resource_name string
    configs []
      name string
      value string ?
      read_only bool
      config_source int8 =-1
      is_sensitive bool
      synonyms []
        name string
        value string ?
        source int8
      config_type int8 3+
      documentation string 3+ ?
""",
        33: """
AlterConfigs 0-2 flexible 2
request
  resources []
    resource_type int8
    resource_name string
    configs []
      name string
      value string ?
  validate_only bool
response
  throttle_time_ms int32
  responses []
    error_code int16
    error_message string ?
    resource_type int8
    resource_name string
""",
        34: """
AlterReplicaLogDirs 1-2 flexible 2
request
  dirs []
    path string
    topics []
      name string
      partitions [int32]
response
  throttle_time_ms int32
  results []
    topic_name string
    partitions []
      partition_index int32
      error_code int16
""",
        35: """
DescribeLogDirs 1-4 flexible 2
request
  topics [] ?
    topic string
    partitions [int32]
response
  throttle_time_ms int32
  error_code int16 3+
  results []
    error_code int16
    log_dir string
    topics []
      name string
      partitions []
        partition_index int32
        partition_size int64
        offset_lag int64
        is_future_key bool
    total_bytes int64 4+ =-1
    usable_bytes int64 4+ =-1
""",
        36: """
SaslAuthenticate 0-2 flexible 2
request
  auth_bytes bytes
response
  error_code int16
  error_message string ?
  auth_bytes bytes
  session_lifetime_ms int64 1+
""",
        37: """
CreatePartitions 0-3 flexible 2
request
  topics []
    name string
    count int32
    assignments [] ?
      broker_ids [int32]
  timeout_ms int32
  validate_only bool
response
  throttle_time_ms int32
  results []
    name string
    error_code int16
    error_message string ? =null
""",
        43: """
ElectLeaders 0-2 flexible 2
request
  election_type int8 1+
  topic_partitions [] ?
    topic string
    partitions [int32]
  timeout_ms int32 =60000
response
  throttle_time_ms int32
  error_code int16 1+
  replica_election_results []
    topic string
    partition_result []
      partition_id int32
      error_code int16
      error_message string ?
""",
        64: """
UnregisterBroker 0-0 flexible 0
request
  broker_id int32
response
  throttle_time_ms int32
  error_code int16
  error_message string ?
""",
        44: """
IncrementalAlterConfigs 0-1 flexible 1
request
  resources []
    resource_type int8
    resource_name string
    configs []
      name string
      config_operation int8
      value string ?
  validate_only bool
response
  throttle_time_ms int32
  responses []
    error_code int16
    error_message string ?
    resource_type int8
    resource_name string
""",
        45: """
AlterPartitionReassignments 0-1 flexible 0
request
  timeout_ms int32 =60000
  allow_replication_factor_change bool 1+ =true
  topics []
    name string
    partitions []
      partition_index int32
      replicas [int32] ? =null
response
  throttle_time_ms int32
  allow_replication_factor_change bool 1+ =true
  error_code int16
  error_message string ?
  responses []
    name string
    partitions []
      partition_index int32
      error_code int16
      error_message string ?
""",
        46: """
ListPartitionReassignments 0-0 flexible 0
request
  timeout_ms int32 =60000
  topics [] ?
    name string
    partition_indexes [int32]
response
  throttle_time_ms int32
  error_code int16
  error_message string ?
  topics []
    name string
    partitions []
      partition_index int32
      replicas [int32]
      adding_replicas [int32]
      removing_replicas [int32]
""",
        60: """
DescribeCluster 0-2 flexible 0
request
  include_cluster_authorized_operations bool
  endpoint_type int8 1+ =1
  include_fenced_brokers bool 2+
response
  throttle_time_ms int32
  error_code int16
  error_message string ? =null
  endpoint_type int8 1+ =1
  cluster_id string
  controller_id int32 =-1
  brokers []
    broker_id int32
    host string
    port int32
    rack string ? =null
    is_fenced bool 2+
  cluster_authorized_operations int32 =-2147483648
""",
        61: """
DescribeProducers 0-0 flexible 0
request
  topics []
    name string
    partition_indexes [int32]
response
  throttle_time_ms int32
  topics []
    name string
    partitions []
      partition_index int32
      error_code int16
      error_message string ? =null
      active_producers []
        producer_id int64
        producer_epoch int32
        last_sequence int32 =-1
        last_timestamp int64 =-1
        coordinator_epoch int32
        current_txn_start_offset int64 =-1
""",
        65: """
DescribeTransactions 0-0 flexible 0
request
  transactional_ids [string]
response
  throttle_time_ms int32
  transaction_states []
    error_code int16
    transactional_id string
    transaction_state string
    transaction_timeout_ms int32
    transaction_start_time_ms int64
    producer_id int64
    producer_epoch int16
    topics []
      topic string
      partitions [int32]
""",
        66: """
ListTransactions 0-2 flexible 0
request
  state_filters [string]
  producer_id_filters [int64]
  duration_filter int64 1+ =-1
  transactional_id_pattern string 2+ ? =null
response
  throttle_time_ms int32
  error_code int16
  unknown_state_filters [string]
  transaction_states []
    transactional_id string
    producer_id int64
    transaction_state string
""",
        74: """
ListConfigResources 0-1 flexible 0
request
  resource_types [int8] 1+
response
  throttle_time_ms int32
  error_code int16
  config_resources []
    resource_name string
    resource_type int8 1+ =16
""",
        75: """
DescribeTopicPartitions 0-0 flexible 0
request
  topics []
    name string
  response_partition_limit int32 =2000
  cursor {} ? =null
    topic_name string
    partition_index int32
response
  throttle_time_ms int32
  topics []
    error_code int16
    name string ?
    topic_id uuid
    is_internal bool
    partitions []
      error_code int16
      partition_index int32
      leader_id int32
      leader_epoch int32 =-1
      replica_nodes [int32]
      isr_nodes [int32]
      eligible_leader_replicas [int32] ? =null
      last_known_elr [int32] ? =null
      offline_replicas [int32]
    topic_authorized_operations int32 =-2147483648
  next_cursor {} ? =null
    topic_name string
    partition_index int32
""",
    }
)
