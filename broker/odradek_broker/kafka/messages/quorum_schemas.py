"""The messages about the metadata quorum and the cluster's features, in the notation of `schemas.py`."""

from __future__ import annotations

QUORUM_DEFINITIONS = {
    55: """
DescribeQuorum 0-2 flexible 0
request
  topics []
    topic_name string
    partitions []
      partition_index int32
response
  error_code int16
  error_message string 2+ ?
  topics []
    topic_name string
    partitions []
      partition_index int32
      error_code int16
      error_message string 2+ ?
      leader_id int32
      leader_epoch int32
      high_watermark int64
      current_voters []
        replica_id int32
        replica_directory_id uuid 2+
        log_end_offset int64
        last_fetch_timestamp int64 1+ =-1
        last_caught_up_timestamp int64 1+ =-1
      observers []
        replica_id int32
        replica_directory_id uuid 2+
        log_end_offset int64
        last_fetch_timestamp int64 1+ =-1
        last_caught_up_timestamp int64 1+ =-1
  nodes [] 2+
    node_id int32
    listeners []
      name string
      host string
      port uint16
""",
    57: """
UpdateFeatures 0-2 flexible 0
request
  timeout_ms int32 =60000
  feature_updates []
    feature string
    max_version_level int16
    allow_downgrade bool 0-0
    upgrade_type int8 1+ =1
  validate_only bool 1+
response
  throttle_time_ms int32
  error_code int16
  error_message string ? =null
  results [] 0-1
    feature string
    error_code int16
    error_message string ? =null
""",
    80: """
AddRaftVoter 0-0 flexible 0
request
  cluster_id string ?
  timeout_ms int32
  voter_id int32
  voter_directory_id uuid
  listeners []
    name string
    host string
    port uint16
response
  throttle_time_ms int32
  error_code int16
  error_message string ?
""",
    81: """
RemoveRaftVoter 0-0 flexible 0
request
  cluster_id string ?
  voter_id int32
  voter_directory_id uuid
response
  throttle_time_ms int32
  error_code int16
  error_message string ?
""",
}
