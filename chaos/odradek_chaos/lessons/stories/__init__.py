"""The lessons by subject: tables of steps over the stage's commands (`odradek_chaos.stage.stage` lists them)."""
