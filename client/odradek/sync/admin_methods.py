"""The methods of `odradek.Admin` without asyncio, one row for each. Written by `make proto`."""

from __future__ import annotations

from odradek.administration.admin import Admin
from odradek.sync.bridge import Facade, blocking


class AdminMethods(Facade):
    create_topics = blocking(Admin.create_topics)
    delete_topics = blocking(Admin.delete_topics)
    create_partitions = blocking(Admin.create_partitions)
    list_topics = blocking(Admin.list_topics)
    describe_topics = blocking(Admin.describe_topics)
    elect_leaders = blocking(Admin.elect_leaders)
    delete_records = blocking(Admin.delete_records)
    alter_partition_reassignments = blocking(Admin.alter_partition_reassignments)
    list_partition_reassignments = blocking(Admin.list_partition_reassignments)
    describe_configs = blocking(Admin.describe_configs)
    list_config_resources = blocking(Admin.list_config_resources)
    incremental_alter_configs = blocking(Admin.incremental_alter_configs)
    alter_configs = blocking(Admin.alter_configs)
    describe_cluster = blocking(Admin.describe_cluster)
    unregister_broker = blocking(Admin.unregister_broker)
    describe_quorum = blocking(Admin.describe_quorum)
    describe_replicas = blocking(Admin.describe_replicas)
    describe_user_scram_credentials = blocking(Admin.describe_user_scram_credentials)
    upsert_user_scram_credentials = blocking(Admin.upsert_user_scram_credentials)
    delete_user_scram_credentials = blocking(Admin.delete_user_scram_credentials)
    describe_acls = blocking(Admin.describe_acls)
    create_acls = blocking(Admin.create_acls)
    delete_acls = blocking(Admin.delete_acls)
    describe_client_quotas = blocking(Admin.describe_client_quotas)
    alter_client_quotas = blocking(Admin.alter_client_quotas)
    list_consumer_groups = blocking(Admin.list_consumer_groups)
    describe_consumer_groups = blocking(Admin.describe_consumer_groups)
    list_consumer_group_offsets = blocking(Admin.list_consumer_group_offsets)
    alter_consumer_group_offsets = blocking(Admin.alter_consumer_group_offsets)
    delete_consumer_groups = blocking(Admin.delete_consumer_groups)
    delete_consumer_group_offsets = blocking(Admin.delete_consumer_group_offsets)
    close = blocking(Admin.close)
