"""What is made of the findings of a partition: excerpts of the bytes, and one finding for one damage."""
