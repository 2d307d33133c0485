"""What an audit reads: log directories, their batches and files, events of brokers, histories of clients."""
