"""The rules of the verdict, by whose doing a doubt is: ours (`client`), the load's or the target's."""
