"""How users reach a cluster: RestApis, Tokens and LoginSets."""
